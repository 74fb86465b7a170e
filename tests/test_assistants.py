"""`fleetlab mcp`, asked by the client of the protocol's own kit: tools that only read, and the verbs' answers."""

import asyncio
import sys

import pytest

mcp = pytest.importorskip("mcp")

from fleetlab.commands.assistants import TOOLS, server  # noqa: E402


def ask(*calls, of=None):
    """Return what a server answers to tools with arguments."""

    async def asked():
        async with mcp.Client(of or server()) as client:
            return [await client.list_tools(), *[await client.call_tool(name, words) for name, words in calls]]

    return asyncio.run(asked())


def test_all_tools_are_said_to_read_alone():
    tools = ask()[0].tools
    assert {tool.name for tool in tools} == {tool.__name__ for tool in TOOLS}
    assert all(tool.annotations.read_only_hint and tool.description for tool in tools)


def test_a_question_about_one_job_is_answered_as_the_command_line_does():
    _, shown, explained = ask(("show", {"trace": "sample"}), ("explain", {"trace": "sample", "job": "lab/998"}))
    assert "1,000" in shown.content[0].text
    assert not explained.is_error
    assert "lab/998" in explained.content[0].text


@pytest.mark.parametrize(
    ("tool", "words", "error"),
    [("show", {"trace": "nowhere"}, "no saved trace in: nowhere"),
     ("compare", {"trace": "sample", "policies": "my_module:mine"}, "built-in policies")],
)  # fmt: skip
def test_a_mistake_is_an_error_with_its_message(tool, words, error):
    answer = ask((tool, words))[1]
    assert answer.is_error
    assert error in answer.content[0].text


def test_it_runs_over_standard_input_and_output():
    process = mcp.StdioServerParameters(command=sys.executable, args=["-m", "fleetlab", "mcp"])
    assert len(ask(of=process)[0].tools) == len(TOOLS)
