"use strict";

const shown = (cell) => cell.dataset.sort ?? cell.textContent.trim();
const exported = (cell) => (cell.dataset.csv ? JSON.parse(cell.dataset.csv) : [cell.textContent.trim()]);

function compare(first, second) {
  if (first === "" || second === "") return (first === "") - (second === ""); // the missing go last
  const numbers = [Number(first), Number(second)];
  if (!numbers.some(Number.isNaN)) return numbers[0] - numbers[1];
  return first.localeCompare(second, "en", { numeric: true });
}

function sortBy(heading) {
  const table = heading.closest("table");
  const column = heading.cellIndex;
  const down = heading.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => {
    const [first, second] = [shown(a.cells[column]), shown(b.cells[column])];
    const order = compare(first, second);
    return down && first !== "" && second !== "" ? -order : order;
  });
  table.tBodies[0].append(...rows);
}

function filterRows(holder, text) {
  const wanted = text.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = [...holder.querySelectorAll("tbody tr")];
  for (const row of rows) {
    const content = row.textContent.toLowerCase();
    row.hidden = !wanted.every((word) => content.includes(word));
  }
  const left = rows.filter((row) => !row.hidden).length;
  holder.querySelector(".count").textContent = wanted.length ? `${left} of ${rows.length} rows` : "";
}

function quoted(value) {
  const text = String(value);
  // A spreadsheet would run text that begins like a formula.
  const safe = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function download(holder, file) {
  const rows = [...holder.querySelectorAll("tr")].filter((row) => !row.hidden);
  const lines = rows.map((row) => [...row.cells].flatMap(exported).map(quoted).join(","));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([lines.join("\r\n") + "\r\n"], { type: "text/csv" }));
  link.download = file;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

for (const holder of document.querySelectorAll(".table")) {
  for (const heading of holder.querySelectorAll("th")) {
    heading.querySelector("button").addEventListener("click", () => sortBy(heading));
  }
  const button = holder.querySelector(".csv");
  button.addEventListener("click", () => download(holder, button.dataset.file));
  const box = holder.querySelector(".filter");
  if (box) box.addEventListener("input", () => filterRows(holder, box.value));
}

const theme = document.getElementById("theme");
const system = matchMedia("(prefers-color-scheme: dark)");
const dark = () => (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
const nameTheme = () => (theme.textContent = dark() ? "Light" : "Dark");
theme.addEventListener("click", () => {
  document.documentElement.dataset.theme = dark() ? "light" : "dark";
  nameTheme();
});
system.addEventListener("change", nameTheme);
theme.hidden = false;
nameTheme();

addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});

function openTarget() {
  const name = decodeURIComponent(location.hash.slice(1));
  const target = name && document.getElementById(name);
  if (!target) return;
  for (let fold = target; fold; fold = fold.parentElement) if (fold.tagName === "DETAILS") fold.open = true;
  target.scrollIntoView();
}
addEventListener("hashchange", openTarget);
// A link to where the reader already is changes no hash, and the fold may have been closed since.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#']");
  if (link && link.hash === location.hash) openTarget();
});
openTarget();
