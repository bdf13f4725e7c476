from __future__ import annotations

from guard_world import HOST, ask, echo

from waysout.domain.budget import Spent
from waysout.domain.result import OutcomeKind
from waysout.serve.guard import Guard, Receive, Scope, Send
from waysout.serve.hosts import Hosts
from waysout.serve.metrics import Counting, Metrics

HOSTS = Hosts.of("127.0.0.1", 8765)


class Route:
    path = "/api/problems/{name}"


async def routed(scope: Scope, receive: Receive, send: Send) -> None:
    scope["route"] = Route
    await echo(scope, receive, send)


def counted(metrics: Metrics) -> dict[str, float]:
    lines = (line for line in metrics.text().decode().splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_answers_are_counted_by_route_not_by_path() -> None:
    metrics = Metrics()
    app = Counting(Guard(routed, HOSTS), metrics)
    for name in ("one", "two", 'odd"} 1\n'):
        ask(app, "GET", f"/api/problems/{name}")
    labels = 'method="GET",route="/api/problems/{name}"'
    found = counted(metrics)
    assert found[f'waysout_requests_total{{{labels},status="200"}}'] == 3
    assert found[f"waysout_request_seconds_count{{{labels}}}"] == 3
    assert "odd" not in metrics.text().decode()


def test_who_is_turned_away_is_counted_without_what_they_sent() -> None:
    metrics = Metrics()
    app = Counting(Guard(routed, HOSTS), metrics)
    for i in range(5):
        ask(app, f"EVIL{i}", f"/evil/{i}", [("host", f"evil{i}.example")])
    text = metrics.text().decode()
    assert "evil" not in text.lower()
    labels = 'method="other",route="unmatched",status="400"'
    assert counted(metrics)[f"waysout_requests_total{{{labels}}}"] == 5


def test_an_answer_passes_unchanged() -> None:
    bare, wrapped = Guard(echo, HOSTS), Counting(Guard(echo, HOSTS), Metrics())
    headers = [HOST, ("content-type", "application/json"), ("content-length", "2")]
    one = ask(bare, "POST", headers=headers, body=[b"{}"])
    assert ask(wrapped, "POST", headers=headers, body=[b"{}"]) == one


def test_searches_and_what_they_spend_are_counted() -> None:
    metrics = Metrics()
    metrics.began()
    metrics.began()
    metrics.ended(str(OutcomeKind.FOUND), 12, Spent(llm_calls=3, oracle_rows=40))
    metrics.ended("anything else", 0, Spent(llm_calls=1))
    found = counted(metrics)
    assert found["waysout_searches_started_total"] == 2
    assert found['waysout_searches_ended_total{outcome="found"}'] == 1
    assert found['waysout_searches_ended_total{outcome="other"}'] == 1
    assert found["waysout_options_found_total"] == 12
    assert found["waysout_llm_calls_total"] == 4
    assert found["waysout_oracle_rows_total"] == 40


def test_a_watched_number_is_looked_up_each_time() -> None:
    metrics, running = Metrics(), [1]
    metrics.watch("waysout_searches_running", "Searches under way", lambda: len(running))
    assert counted(metrics)["waysout_searches_running"] == 1
    running.clear()
    assert counted(metrics)["waysout_searches_running"] == 0


def test_two_servers_do_not_mix_their_counts() -> None:
    one, other = Metrics(), Metrics()
    one.began()
    assert counted(other)["waysout_searches_started_total"] == 0
