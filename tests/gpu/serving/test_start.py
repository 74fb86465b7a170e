"""How a server begins, and what it says when it cannot."""

import json
import socket
import time

import pytest

from fleetlab.cli import main as command
from fleetlab.gpu.serving.server.__main__ import main


def test_a_server_that_loads_lives_but_is_not_ready(start, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "gate").touch()
    words = ["--set", "slow_load=true", "--port", str(port), "--json"]
    with start(tmp_path, "echoes:Echo", *words, ready=False) as house:
        house.said = f"http://127.0.0.1:{port}"
        end = time.monotonic() + 60
        while True:
            try:
                assert house.ask("GET", "/health")[0] == 200
                break
            except ConnectionRefusedError:
                assert time.monotonic() < end
        assert house.ask("GET", "/ready")[0] == 503
        status, headers, told = house.ask("POST", "/predict", '{"seed": 1}')
        assert (status, told["reason"], headers["retry-after"]) == (503, "not-ready", "1")
        house.gate.unlink()
        told = json.loads(house.process.stdout.readline())
        assert told == {"work": "echoes:Echo", "url": house.url, "device": "cpu", "pid": house.process.pid}
        assert house.ask("GET", "/ready")[0] == 200


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["resnett"], "unknown workload: `resnett`"),
        (["gemm", "--tiny"], "workload cannot be served: `gemm`"),
        (["bert-infer", "--set", "widht=8"], "bert-infer: unknown setting: widht"),
        (["bert-infer", "--set", "width"], "not a setting: `width`"),
        (["bert-infer", "--tiny", "--device", "tpu"], "no such device: `tpu`"),
        (["bert-infer", "--tiny", "--device", "cuda:99"], "no such NVIDIA GPU"),
        (["bert-infer", "--queue", "0"], "invalid limit: --queue 0"),
        (["bert-infer", "--connections", "100000000"], "too many connections"),
        (["bert-infer", "--host", "nowhere.invalid"], "no such address"),
        (["bert-infer", "--port", "70000"], "not a port: 70000"),
    ],
)
def test_what_cannot_be_served_is_told_with_a_hint(words, why, capsys):
    device = [] if "--device" in words else ["--device", "cpu"]
    port = [] if "--port" in words else ["--port", "0"]
    assert main([*words, *device, *port]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert why in err.partition("error: ")[2]
    assert "hint: " in err


def test_a_port_that_is_taken_is_told(capsys):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert main(["bert-infer", "--tiny", "--device", "cpu", "--port", str(port)]) == 2
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in capsys.readouterr().err


def test_only_loopback_goes_without_a_warning(capsys):
    assert main(["resnett", "--port", "0"]) == 2
    assert "warning" not in capsys.readouterr().err
    assert main(["resnett", "--port", "0", "--host", "0.0.0.0"]) == 2
    assert "warning: listening on 0.0.0.0" in capsys.readouterr().err


def test_the_command_fails_as_commands_do(capsys):
    with pytest.raises(SystemExit) as e:
        command(["bench", "serve", "gemm", "--tiny", "--device", "cpu", "--port", "0"])
    assert e.value.code == 2
    assert "error: workload cannot be served: `gemm`" in capsys.readouterr().err
