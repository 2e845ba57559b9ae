import dataclasses
from typing import ClassVar

import numpy as np
import pytest
import torch
from cases import access_to, finished, question_about, scores
from conftest import CLASSES, SHAPE, make_images, make_model, make_plain_model, make_split
from report_runs import a_row, page_of
from test_access import reachable
from torch import Tensor

from glasshouse import BadInput, Dataset, audit
from glasshouse.access import PayloadAccess, Protocol, ReportAccess, SeenPayload, SeenReports
from glasshouse.attacks import ATTACKS
from glasshouse.attacks.attack import Knowledge
from glasshouse.attacks.disclosure.mimics import PER_CLASS, MimicDistance, MimicNeighbours, received
from glasshouse.attacks.disclosure.reports import ReportedLabels, mixtures, simulate
from glasshouse.auditing.battery import disclosed
from glasshouse.auditing.examine import examine
from glasshouse.auditing.setting import make_setting
from glasshouse.data.images import Images
from glasshouse.data.split import Split
from glasshouse.errors import CannotRun
from glasshouse.evidence.nearness import Nearness
from glasshouse.federation.channels import CHANNELS
from glasshouse.federation.federation import Federation
from glasshouse.federation.strategies.fedavg import FedAvg
from glasshouse.federation.strategies.generator import Generator
from glasshouse.federation.strategies.recalling import FedGEN
from glasshouse.federation.updates import Update
from glasshouse.learning.evaluate import predict
from glasshouse.learning.layout import Layout, read_vector
from glasshouse.learning.recipe import Recipe
from glasshouse.measures.estimate import clustered_proportion, proportion
from glasshouse.models.outputs import features, output_layer

RNG = torch.Generator()


class Talkative(FedAvg):
    """Asks for the mean pixel, and sends images of noise along."""

    client_reports: ClassVar = ("its mean pixel",)
    server_payload: ClassVar = ("images of noise",)

    def report(self, module, images):
        return {"mean": images.x.mean()}

    def brief(self, server):
        return {"mimic": torch.rand(12, *server.shape, generator=server.torch_rng("noise"))}


class Counting(FedAvg):
    """Asks for label counts, among other things."""

    client_reports: ClassVar = ("its label counts",)

    def report(self, module, images):
        return {"size": torch.tensor(float(len(images))), "tally": images.label_counts()}


class Moments(FedAvg):
    """Asks for the mean and the variance of all pixels."""

    def report(self, module, images):
        return {"moments": torch.stack([images.x.mean(), images.x.var()])}


class Answers(FedAvg):
    """Asks for the mean answer of the model sent."""

    def report(self, module, images):
        return {"answer": predict(module, images.x).softmax(1).mean(0)}


def protocol_of(strategy, model=None):
    model = model or make_plain_model()
    return Protocol(model, Layout.of(model), Recipe(), SHAPE, CLASSES, strategy=strategy)


def payload_access(*payloads, strategy=None, model=None):
    """What a client received in one round after the other."""
    protocol = protocol_of(strategy or FedAvg(), model)
    sent = read_vector(protocol.architecture)
    return PayloadAccess(protocol, tuple(SeenPayload(k, sent, own) for k, own in enumerate(payloads)))


def report_access(strategy, devices, rounds=1):
    """What a server was told by clients with these images, the same in every round."""
    protocol = protocol_of(strategy)
    sent = read_vector(protocol.architecture)
    model = protocol.architecture.eval()
    reports = {client: strategy.report(model, images) for client, images in enumerate(devices)}
    sizes = {client: len(images) for client, images in enumerate(devices)}
    return ReportAccess(protocol, tuple(SeenReports(k, sent, reports, sizes) for k in range(rounds)))


def shades(count, seed, classes=range(CLASSES)):
    """Noise whose brightness, and nothing else, tells the class."""
    rng = torch.Generator().manual_seed(seed)
    y = torch.tensor(list(classes))[torch.arange(count) % len(list(classes))]
    return Images(0.2 * torch.rand(count, *SHAPE, generator=rng) + 0.2 * y.view(-1, 1, 1, 1), y, CLASSES)


def of_classes(images, *wanted):
    return images[np.flatnonzero(np.isin(images.y.numpy(), wanted))]


def records(count=60):
    """Candidates of which every other is a member."""
    images = make_images(count, seed=3)
    return images, np.arange(count) % 2 == 0


def test_samples_that_are_members_give_all_of_them_away():
    images, member = records()
    access = payload_access({"mimic": images.x[member]})
    evidence = MimicDistance().run(access, Knowledge(images), RNG)
    assert scores(evidence, question_about(images, member))["auc"].estimate.value == 1
    np.testing.assert_array_equal(evidence.decisions, member)
    near = MimicNeighbours().run(access, Knowledge(images), RNG)
    [share] = near.judge(question_about(images, member)).scores
    assert (share.metric, share.estimate.value, share.chance) == ("nearest-member-share", 1, 0.5)
    assert share.estimate.low == pytest.approx(proportion(30, 30).low)
    assert share.estimate.n == 30


def test_samples_of_all_rounds_count_for_distances_and_those_of_the_last_for_neighbours():
    images, member = records()
    access = payload_access({"mimic": images.x[member]}, {"mimic": images.x[~member]})
    scores = MimicDistance().run(access, Knowledge(images), RNG).scores
    np.testing.assert_allclose(scores, 0, atol=1e-6)
    near = MimicNeighbours().run(access, Knowledge(images), RNG)
    [share] = near.judge(question_about(images, member)).scores
    assert share.estimate.value == 0


def test_samples_of_noise_say_nothing():
    images = make_images(400, seed=3)
    member = np.random.default_rng(0).permutation(400) < 250
    noise = torch.rand(60, *SHAPE, generator=torch.Generator().manual_seed(1))
    access = payload_access({"mimic": noise})
    question = question_about(images, member)
    for attack in (MimicDistance(), MimicNeighbours()):
        score, *_ = attack.run(access, Knowledge(images), RNG).judge(question).scores
        assert score.chance == 0.5
        assert score.estimate.low <= 0.5 <= score.estimate.high


def test_neighbours_are_sought_among_as_many_members_as_others():
    """Where all are equally far, the share of members must not follow how many there are."""
    rng = np.random.default_rng(0)
    images = make_images(2000)
    member = np.arange(2000) < 1800
    [share] = Nearness(rng.random((400, 2000))).judge(question_about(images, member)).scores
    assert share.estimate.low < 0.5 < share.estimate.high
    assert " of 400" in share.estimate.note


def test_samples_with_the_same_nearest_record_are_one_observation():
    distances = np.ones((60, 40))
    distances[:, 7] = 0
    member = np.arange(40) % 2 == 1
    [share] = Nearness(distances).judge(question_about(make_images(40), member)).scores
    assert (share.estimate.value, share.estimate.n) == (1, 1)
    assert share.estimate.low == pytest.approx(proportion(1, 1).low)
    assert "60 samples, nearest to 1 different records of 40" in share.estimate.note


def test_a_share_of_single_cases_has_the_exact_interval():
    hits = np.arange(50) < 13
    each = clustered_proportion(hits, np.arange(50))
    known = proportion(13, 50)
    assert (each.low, each.high) == pytest.approx((known.low, known.high))
    assert clustered_proportion(hits, np.arange(50) // 10).low < each.low


def test_features_are_compared_with_what_the_last_layer_is_given():
    images, member = records()
    model = make_model().eval()
    with torch.no_grad():
        made = features(model, output_layer(model, SHAPE), images.x[member])
    access = payload_access({"features": made, "classes": images.y[member]}, model=model)
    near = MimicNeighbours().run(access, Knowledge(images), RNG)
    assert near.distances.shape == (30, 60)
    assert np.abs(near.distances[np.arange(30), np.flatnonzero(member)]).max() < 1e-4
    evidence = MimicDistance().run(access, Knowledge(images), RNG)
    assert scores(evidence, question_about(images, member))["auc"].estimate.value == 1


def test_a_generator_is_asked_for_features_of_every_class():
    strategy, model = FedGEN(noise=3, hidden=5), make_plain_model()
    generator = Generator(3, CLASSES, 5, 16).eval()
    access = payload_access({"generator": read_vector(generator)}, strategy=strategy, model=model)
    [samples] = received(access, torch.Generator().manual_seed(0))
    rng = torch.Generator().manual_seed(0)
    labels = torch.tensor([label for label in range(CLASSES) for _ in range(PER_CLASS)])
    with torch.no_grad():
        torch.testing.assert_close(samples.points, generator(generator.draw(len(labels), rng), labels))
    assert samples.place(torch.rand(7, *SHAPE)).shape == (7, 16)


def test_what_holds_no_samples_is_named():
    access = payload_access({"variate": torch.ones(4)}, {"variate": torch.ones(4)})
    for attack in (MimicDistance(), MimicNeighbours()):
        with pytest.raises(CannotRun, match=r"no samples in what the server sends .* \(variate\)"):
            attack.run(access, Knowledge(records()[0]), RNG)


def test_samples_that_are_no_numbers_are_refused():
    access = payload_access({"mimic": torch.full((2, *SHAPE), torch.nan)})
    with pytest.raises(CannotRun, match="not finite"):
        MimicNeighbours().run(access, Knowledge(records()[0]), RNG)


def test_label_counts_that_are_told_are_read(engine):
    case = finished(engine, strategy=Counting(), rounds=2)
    overlap, exact = examine(case, "reported-labels", ReportAccess).scores
    assert overlap.estimate.value == exact.estimate.value == 1
    assert exact.estimate.n == len(case.sizes)


@pytest.mark.parametrize("strategy", [Moments(), Answers()], ids=["moments", "answers"])
def test_classes_that_differ_in_what_is_told_are_told_apart(strategy):
    whole = shades(400, seed=1)
    devices = [of_classes(whole, 0), of_classes(whole, 3), of_classes(whole, 0, 1)]
    access = report_access(strategy, devices)
    evidence = ReportedLabels().run(access, Knowledge(auxiliary=shades(200, seed=2)), RNG)
    for counted, own in zip(evidence.counted, devices):
        assert np.abs(counted.counts - own.label_counts().numpy()).sum() <= 0.05 * len(own)


def test_a_report_that_says_nothing_of_classes_leaves_them_all_alike():
    class Nothing(FedAvg):
        def report(self, module, images):
            return {"noise": torch.rand(2, generator=rng)}

    rng = torch.Generator().manual_seed(0)
    access = report_access(Nothing(), [make_images(40, seed=5)] * 3)
    evidence = ReportedLabels().run(access, Knowledge(auxiliary=make_images(80, seed=6)), RNG)
    for counted in evidence.counted:
        assert counted.counts.sum() == 40
        assert counted.counts.max() <= 20


def test_hearing_the_same_again_makes_nobody_surer():
    devices, known = [of_classes(shades(80, seed=1), 1, 2)], Knowledge(auxiliary=shades(40, seed=2))
    once, often = (
        ReportedLabels().run(report_access(Moments(), devices, rounds), known, torch.Generator())
        for rounds in (1, 5)
    )
    np.testing.assert_array_equal(once.counted[0].counts, often.counted[0].counts)


def test_the_mixtures_are_each_class_each_pair_and_all_that_there_are():
    shares = mixtures(np.array([10, 0, 20, 10]))
    np.testing.assert_allclose(shares.sum(1), 1)
    assert len(shares) == 3 + 3 + 1
    assert (shares[:, 1] == 0).all()
    np.testing.assert_allclose(shares[-1], [0.25, 0, 0.5, 0.25])
    assert len(mixtures(np.ones(60))) == 61


def test_simulated_clients_report_the_mean_of_their_images_with_the_spread_of_means():
    images, size = shades(4000, seed=1), 52
    protocol = protocol_of(Talkative())
    sent = [read_vector(protocol.architecture)]
    made = simulate(protocol, sent, images, size, 8, np.random.default_rng(0))
    brightness = [of_classes(images, label).x.mean().item() for label in range(CLASSES)]
    np.testing.assert_allclose(made.means[:, 0], made.shares @ brightness, atol=5e-3)
    # A mean of 64 pixels of 52 images, each uniform on an interval of length 0.2.
    assert made.spread.item() == pytest.approx(0.2**2 / 12 / 64 / size, rel=0.3)
    np.testing.assert_allclose(made.doubt[-1], 1 + 1 / 8 + size / 4000)


def test_too_few_simulated_clients_are_refused():
    with pytest.raises(BadInput, match="clients = 1 is out of range; it must"):
        ATTACKS.make("reported-labels(clients=1)")


def test_reports_that_are_no_numbers_are_refused():
    class Broken(FedAvg):
        def report(self, module, images):
            return {"mean": torch.tensor(torch.nan)}

    known = Knowledge(auxiliary=make_images(40))
    with pytest.raises(CannotRun, match="not finite"):
        ReportedLabels().run(report_access(Broken(), [make_images(8)]), known, RNG)


def test_servers_and_clients_get_what_travels_beside_the_models(engine):
    case = finished(engine, strategy=Talkative(), rounds=2)
    told, sent = access_to(case, ReportAccess), access_to(case, PayloadAccess)
    assert [seen.number for seen in told.rounds] == [seen.number for seen in sent.rounds] == [0, 1]
    split = make_split()
    for client, report in told.rounds[1].reports.items():
        own = split.client(client)
        torch.testing.assert_close(report["mean"], own.x.mean())
        assert told.rounds[1].sizes[client] == len(own)
    assert sent.rounds[1].payload.keys() == {"mimic"}


def test_reports_arrive_in_the_clear_behind_secure_aggregation(engine):
    case = finished(engine, strategy=Talkative(), channel=CHANNELS.make("secure"))
    assert access_to(case, ReportAccess).rounds[0].reports.keys() == {0, 1, 2}


@pytest.mark.parametrize("kind", [ReportAccess, PayloadAccess])
def test_no_attribute_leads_to_data_to_updates_or_to_the_auditor(kind, engine):
    case = finished(engine, strategy=Talkative(), rounds=2)
    for value in reachable(access_to(case, kind)):
        assert not isinstance(value, Images | Split | Federation | Update | np.ndarray), type(value)
        assert type(value).__module__.split(".")[:2] != ["glasshouse", "auditing"], type(value)


def test_a_client_reaches_no_report_and_a_server_no_more_than_was_told(engine):
    case = finished(engine, strategy=Talkative(), rounds=2)
    scalars = [v for v in reachable(access_to(case, PayloadAccess)) if isinstance(v, Tensor) and v.ndim == 0]
    assert not scalars
    fields = {field.name for field in dataclasses.fields(SeenReports)}
    assert fields == {"number", "sent", "reports", "sizes"}


def test_where_nothing_travels_beside_the_models_there_is_nothing_to_read(engine):
    case = finished(engine)
    with pytest.raises(CannotRun, match="clients report nothing beside their updates"):
        access_to(case, ReportAccess)
    with pytest.raises(CannotRun, match="the server sends nothing beside the model"):
        access_to(case, PayloadAccess)


def the_setting(strategy, attacks=("gap",), defences=(), **audited):
    return make_setting({
        "data": {"clients": 3, "members": 30, "nonmembers": 20, "auxiliary": 24, "test": 20},
        "training": {"rounds": 2, "batch_size": 10, "strategy": strategy},
        "audit": {"attacks": attacks, "defences": defences, "central": False, "curvature": 0, **audited},
    })  # fmt: skip


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("fedavg", []),
        ("afl", ["reported-labels"]),
        ("scaffold", ["mimic-distance", "mimic-neighbours"]),
        ("fed-fsnet", ["reported-labels", "mimic-distance", "mimic-neighbours"]),
    ],
)
def test_what_a_strategy_lets_travel_is_audited_without_being_named(strategy, expected):
    assert disclosed(the_setting(strategy)) == expected
    named = the_setting(strategy, attacks=("reported-labels(clients=2)",))
    assert disclosed(named) == [name for name in expected if name != "reported-labels"]


def test_an_audit_tells_what_travels_beside_the_models_and_what_privacy_leaves_out(tmp_path):
    private = "differential-privacy(norm=1.0, noise=0.1, clients=3)"
    setting = the_setting("test_disclosure:Talkative", defences=(private,))
    made = audit(
        setting, dataset=Dataset("stripes", make_images(94)), model=make_plain_model(),
        out=tmp_path / "run", workers=1, quiet=True,
    )  # fmt: skip
    found = {(row.attack, row.adversary, row.defence, row.metric): row for row in made.findings}
    for defence in ("none", private):
        assert found["reported-labels", "curious server", defence, "label-overlap"].n == 3
        assert found["mimic-distance", "client", defence, "auc"].n == 50
        share = found["mimic-neighbours", "client", defence, "nearest-member-share"]
        assert 1 <= share.n <= 12
        assert (share.chance, share.family) == (0.5, "disclosure")
    open_, covered = (found[None, None, name, "test-accuracy"] for name in ("none", private))
    assert open_.note is None
    assert open_.assumes == covered.assumes == ()
    assert "not what each client reports beside them: its mean pixel" in covered.note
    text = (tmp_path / "run" / "report.html").read_text()
    assert "Differential privacy covers the updates and not what each client reports" in text
    assert "nearest record is a member" in text


def test_the_page_says_what_the_samples_are_near(tmp_path):
    row = a_row(
        family="disclosure", adversary="client", attack="mimic-neighbours", metric="nearest-member-share",
        value=0.9, low=0.8, high=0.95, chance=0.5, n=60,
    )  # fmt: skip
    text = page_of(tmp_path, row)
    assert "Do the samples that the server sends lie nearer to training records than to others?" in text
    assert "receives samples whose nearest record was used for training in 90 of 100 cases" in text
    assert "it would be 50." in text
