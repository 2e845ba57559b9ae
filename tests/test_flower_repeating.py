"""A run that begins again in the folder of its record goes on where that ends; another run is refused."""

import numpy as np
import pytest
import torch
from conftest import make_split
from safetensors.numpy import load_file

from glasshouse import BadInput
from glasshouse.recording.reader import read_recording

pytest.importorskip("flwr", reason="Flower is missing: pip install 'glasshouse[flower]'")
pytestmark = pytest.mark.extras

import flower_apps  # noqa: E402
import test_flower_legacy as legacy  # noqa: E402
from flower_grid import adding  # noqa: E402
from test_flower_recording import fedavg, play, recorded  # noqa: E402
from test_flower_secure import SAMPLES, changes, make_grid, run  # noqa: E402

from glasshouse.errors import Fault  # noqa: E402
from glasshouse.integrations.flower import record  # noqa: E402
from glasshouse.integrations.flower.masking import secure_mod  # noqa: E402
from glasshouse.integrations.flower.summing import SecureGrid  # noqa: E402
from glasshouse.recording.seen import Seen  # noqa: E402


@pytest.fixture(autouse=True)
def _as_a_task():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the networks are tiny
    with flower_apps.identity():
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def split():
    return make_split()


def contents(folder):
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("options", [{}, {"clients": 1}, {"clients": 0}, {"every": 2}])
def test_clients_that_draw_anew_are_another_run_from_the_same_model_on(split, tmp_path, options):
    """Killed in its second round, a run leaves one; the model sent in it is the same for both."""
    play(split, recorded(fedavg(), tmp_path / "record", **options), rounds=1)
    before = contents(tmp_path / "record")
    with pytest.raises(BadInput, match=r"holds round 1 of another run.*delete this one"):
        play(split, recorded(fedavg(), tmp_path / "record", **options), rounds=3, seed=1)
    assert contents(tmp_path / "record") == before


@pytest.mark.parametrize("options", [{}, {"clients": 1}, {"clients": 0}, {"every": 2}])
def test_a_run_that_repeats_what_the_record_has_goes_on_where_it_ends(split, tmp_path, options):
    play(split, recorded(fedavg(), tmp_path / "twice", **options), rounds=1)
    for name in ("twice", "once"):
        play(split, recorded(fedavg(), tmp_path / name, **options), rounds=3)
    twice, once = (read_recording(tmp_path / name) for name in ("twice", "once"))
    assert [one.number for one in twice.rounds] == [one.number for one in once.rounds]
    pairs = zip(twice.rounds, once.rounds, strict=True)
    files = [(a, b) for one, other in pairs for a, b in zip(one.files, other.files, strict=True)]
    for file, other in [*files, (twice.final, once.final)]:
        ours, theirs = load_file(file), load_file(other)
        assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


def without(*gone):
    return lambda node, number, reply: None if node in gone else reply


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ([702], [], "'node-702' took no part"),
        ([], [702], "'node-702' took part"),
        ([], [701, 702, 703], "'node-701' took part"),
    ],
)
def test_a_round_with_other_clients_is_one_of_another_run(split, tmp_path, first, second, words):
    play(split, recorded(fedavg(), tmp_path / "record"), rounds=1, spoil=without(*first))
    with pytest.raises(BadInput, match=words):
        play(split, recorded(fedavg(), tmp_path / "record"), rounds=2, spoil=without(*second))


def test_a_client_that_could_not_be_recorded_is_none_of_the_repeated_round_either(split, tmp_path):
    def spoil(node, number, reply):
        if node == 702:
            reply.content["metrics"]["num-examples"] += 0.5
        return reply

    for rounds in (1, 2):
        play(split, recorded(fedavg(), tmp_path / "record"), rounds=rounds, spoil=spoil)
    assert read_recording(tmp_path / "record").clients == ("node-701", "node-703")


def test_a_client_of_other_samples_is_one_of_another_run(split, tmp_path):
    def spoil(node, number, reply):
        reply.content["metrics"]["num-examples"] += node == 702
        return reply

    play(split, recorded(fedavg(), tmp_path / "record"), rounds=1)
    with pytest.raises(BadInput, match="'node-702' sent another update"):
        play(split, recorded(fedavg(), tmp_path / "record"), rounds=1, spoil=spoil)


def test_a_round_that_the_record_lacks_before_others_is_not_filled_in(split, tmp_path, monkeypatch):
    """It could be one of another run, before the first difference is found."""
    folder, written = tmp_path / "record", Seen._write

    def failing(self, name, content):
        if self._number == 1:
            raise Fault("the disk is full; free some space")
        written(self, name, content)

    monkeypatch.setattr(Seen, "_write", failing)
    play(split, recorded(fedavg(), folder), rounds=2)
    monkeypatch.setattr(Seen, "_write", written)
    before = contents(folder)
    with pytest.raises(BadInput, match="holds round 2 of another run, which sent another model"):
        play(split, recorded(fedavg(), folder), rounds=2, seed=1)
    assert contents(folder) == before


def test_a_shorter_run_that_repeats_the_record_leaves_its_final_model(split, tmp_path):
    play(split, recorded(fedavg(), tmp_path / "record"), rounds=3)
    before = contents(tmp_path / "record")
    play(split, recorded(fedavg(), tmp_path / "record"), rounds=2)
    assert contents(tmp_path / "record") == before


def test_opened_sums_are_compared_too(tmp_path):
    def recorded_sums():
        return record(fedavg(), tmp_path / "record", channel="sum")

    run(SecureGrid(make_grid()), recorded_sums())
    run(SecureGrid(make_grid()), recorded_sums(), rounds=2)
    assert [one.number for one in read_recording(tmp_path / "record").rounds] == [1, 2]
    with pytest.raises(BadInput, match="in which the sum was of other clients"):
        run(SecureGrid(make_grid(lost=lambda place, message: place == 1)), recorded_sums())
    other = make_grid()
    other.apps[0] = adding(changes()[1], SAMPLES[0], [secure_mod()])
    with pytest.raises(BadInput, match="holds round 1 of another run, in which the sum was another"):
        run(SecureGrid(other), recorded_sums())


def test_legacy_rounds_are_compared_too(tmp_path, monkeypatch):
    def play_legacy(rounds):
        legacy.play(legacy.recorded(legacy.fedavg(), tmp_path / "record"), rounds=rounds)

    play_legacy(1)
    play_legacy(2)
    assert [one.number for one in read_recording(tmp_path / "record").rounds] == [1, 2]
    fit = legacy.Adds.fit

    def drawing(self, parameters, config):
        arrays, samples, metrics = fit(self, parameters, config)
        return [array + 1 for array in arrays], samples, metrics

    monkeypatch.setattr(legacy.Adds, "fit", drawing)
    with pytest.raises(BadInput, match="'ward 0' sent another update"):
        play_legacy(1)
