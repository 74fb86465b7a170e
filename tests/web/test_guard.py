"""Who may come in: our own page on our own host, and from elsewhere whoever has the token."""

import asyncio
import socket
from urllib.parse import urlencode

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from fleetlab import FleetlabError
from fleetlab.web.guard import HEADERS, Guard, is_loopback

HERE = "127.0.0.1:8765"


def behind(guard):
    routes = [
        Route("/", lambda _: PlainTextResponse("the page")),
        Route("/api/operations", lambda _: PlainTextResponse("done"), methods=["GET", "POST", "DELETE"]),
        Route("/token", guard.enter, methods=["POST"]),
    ]
    return guard.before(Starlette(routes=routes))


def ask(guard, path="/", method="GET", body=b"", host=HERE, **headers):
    """The status, the headers and the text of one answer."""
    path, _, query = path.partition("?")
    sent_headers = [(b"host", host.encode()), *((k.replace("_", "-").encode(), v.encode()) for k, v in headers.items())]
    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": sent_headers}
    scope |= {"scheme": "http", "server": ("127.0.0.1", 8765), "http_version": "1.1", "root_path": ""}
    sent = []

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    asyncio.run(behind(guard)(scope, receive, send))
    found = {k.decode().lower(): v.decode() for k, v in sent[0]["headers"]}
    return sent[0]["status"], found, b"".join(m.get("body", b"") for m in sent[1:]).decode()


@pytest.fixture
def guard():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return Guard.of(listening, "127.0.0.1")


@pytest.fixture
def elsewhere():
    return Guard(frozenset({"lab.example"}), "secret-token", "fleetlab-8765")


def test_on_this_machine_no_token_is_asked_for(guard):
    assert guard.token is None
    assert ask(guard)[0] == 200


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765", "[::1]:8765", "LOCALHOST:8765"])
def test_the_page_answers_to_the_names_of_this_machine(guard, host):
    assert ask(guard, host=host)[0] == 200


@pytest.mark.parametrize("host", ["localhost:9000", "127.0.0.1:9000", "[::1]:9000", "localhost", "127.0.0.1", "[::1]"])
def test_a_forwarded_port_has_another_number_and_port_80_has_none(guard, host):
    assert ask(guard, host=host)[0] == 200
    own = {"origin": f"http://{host}", "sec_fetch_site": "same-origin"}
    assert ask(guard, "/api/operations", "POST", host=host, **own)[0] == 200


def test_a_page_on_another_port_of_this_machine_is_another_site(guard):
    assert ask(guard, "/api/operations", "POST", host="localhost:8765", origin="http://localhost:9000")[0] == 403
    assert ask(guard, "/api/operations", "POST", host="localhost", origin="http://localhost:9000")[0] == 403
    assert ask(guard, "/api/operations", host="localhost:8765", sec_fetch_site="same-site")[0] == 403


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:8765",
        "evil.example",
        "127.0.0.1.evil.example:8765",
        "localhost.evil.example",
        "evil.localhost",
        "localhost:80@evil.example",
        "localhost:8765:1",
        "localhost:",
        "localhost:x",
        "local host",
        "::1",
        "[127.0.0.1",
        "",
        "10.0.0.1:8765",
        "0.0.0.0:8765",
        "2130706433",
    ],
)
def test_a_name_that_leads_here_by_trickery_is_not_answered_to(guard, host):
    status, _, body = ask(guard, host=host)
    assert status == 421
    assert "hint" in body


def test_a_page_of_another_site_cannot_ask(guard):
    assert ask(guard, "/api/operations", "POST", origin="http://evil.example")[0] == 403
    assert ask(guard, "/api/operations", "POST", origin="null")[0] == 403
    assert ask(guard, "/api/operations", sec_fetch_site="cross-site", sec_fetch_mode="no-cors")[0] == 403
    assert ask(guard, "/api/operations", sec_fetch_site="same-site")[0] == 403
    assert ask(guard, "/api/operations", sec_fetch_site="cross-site", sec_fetch_mode="navigate")[0] == 403


def test_our_own_page_can(guard):
    assert ask(guard, "/api/operations", "POST", origin=f"http://{HERE}", sec_fetch_site="same-origin")[0] == 200


def test_a_link_from_elsewhere_opens_the_page(guard):
    assert ask(guard, sec_fetch_site="cross-site", sec_fetch_mode="navigate")[0] == 200


def test_every_answer_says_what_the_page_may_do(guard):
    for path, host in (("/", HERE), ("/nothing", HERE), ("/", "evil.example")):
        headers = ask(guard, path, host=host)[1]
        assert {name.lower(): headers[name.lower()] for name in HEADERS} == {n.lower(): v for n, v in HEADERS.items()}
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


def test_the_interface_is_not_kept_by_browsers(guard):
    assert ask(guard, "/api/operations")[1]["cache-control"] == "no-store"


# --- by other names ----------------------------------------------------------------------------------------------


def allowing(*names):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return Guard.of(listening, "127.0.0.1", names)


def test_an_allowed_name_is_answered_to_with_a_token_whatever_its_port(guard):
    proxied = allowing("Lab.example", "other.example")
    known = {"authorization": f"Bearer {proxied.token}"}
    for host in ("lab.example", "lab.example:443", "other.example", "localhost:8765"):
        assert ask(proxied, "/api/operations", host=host, **known)[0] == 200
        assert ask(proxied, "/api/operations", host=host)[0] == 401
    assert ask(proxied, "/api/operations", host="evil.example", **known)[0] == 421
    assert ask(guard, "/api/operations", host="lab.example")[0] == 421


@pytest.mark.parametrize("name", ["", "*", "http://lab.example", "lab.example:80", "lab example", "lab.example/x"])
def test_what_is_no_name_cannot_be_allowed(name):
    with pytest.raises(FleetlabError, match="not the name of a host"):
        allowing(name)


# --- from elsewhere ----------------------------------------------------------------------------------------------


def test_elsewhere_there_is_a_token_nobody_guesses():
    tokens = set()
    for _ in range(5):
        with socket.create_server(("0.0.0.0", 0)) as listening:
            tokens.add(Guard.of(listening, "0.0.0.0").token)
    assert len(tokens) == 5
    assert min(map(len, tokens)) >= 32


def test_without_the_token_the_page_asks_for_it_and_the_interface_refuses(elsewhere):
    status, _, body = ask(elsewhere, host="lab.example:8765")
    assert (status, 'name="token"' in body, "the page" in body) == (401, True, False)
    assert ask(elsewhere, "/api/operations", host="lab.example:8765")[0] == 401


@pytest.mark.parametrize("wrong", ["", "secret", "secret-token ", "SECRET-TOKEN", "x" * 10_000, "sécret"])
def test_a_wrong_token_opens_nothing(elsewhere, wrong):
    assert ask(elsewhere, "/?" + urlencode({"token": wrong}), host="lab.example:8765")[0] == 401
    body = urlencode({"token": wrong}).encode()
    assert ask(elsewhere, "/token", "POST", body, host="lab.example:8765")[0] == 401


def test_the_address_with_the_token_gives_a_cookie_and_goes_on_without_it(elsewhere):
    status, headers, _ = ask(elsewhere, "/?token=secret-token&order=sjf", host="lab.example:8765")
    assert (status, headers["location"]) == (303, "/?order=sjf")
    cookie = headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


def test_the_cookie_or_a_header_opens_it(elsewhere):
    here = {"host": "lab.example:8765"}
    assert ask(elsewhere, **here, cookie="fleetlab-8765=secret-token")[0] == 200
    assert ask(elsewhere, "/api/operations", **here, authorization="Bearer secret-token")[0] == 200


def test_a_token_that_is_typed_in_opens_it_and_brings_back_the_address(elsewhere):
    body = urlencode({"token": "secret-token", "to": "order=sjf"}).encode()
    status, headers, _ = ask(elsewhere, "/token", "POST", body, host="lab.example:8765")
    assert (status, headers["location"]) == (303, "/?order=sjf")


def test_the_form_sends_nobody_away_from_here_and_holds_no_markup_of_others(elsewhere):
    body = urlencode({"token": "secret-token", "to": "//evil.example/\r\nX: y"}).encode()
    headers = ask(elsewhere, "/token", "POST", body, host="lab.example:8765")[1]
    assert headers["location"].startswith("/?")
    assert "x" not in headers
    page = ask(elsewhere, '/?order="><script>', host="lab.example:8765")[2]
    assert "<script>" not in page


def test_elsewhere_addresses_are_ours_and_other_names_are_not(elsewhere):
    cookie = {"cookie": "fleetlab-8765=secret-token"}
    assert ask(elsewhere, host="192.0.2.7:8765", **cookie)[0] == 200
    assert ask(elsewhere, host="evil.example:8765", **cookie)[0] == 421


@pytest.mark.parametrize(
    ("address", "inside"),
    [("127.0.0.1", True), ("::1", True), ("127.9.9.9", True), ("0.0.0.0", False), ("10.0.0.1", False), ("::", False)],
)
def test_only_loopback_is_seen_from_this_machine_alone(address, inside):
    assert is_loopback(address) is inside
