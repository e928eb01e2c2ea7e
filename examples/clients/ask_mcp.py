"""Ask skillbus as an agent does, over MCP, and print the tools and the answer.

python examples/clients/ask_mcp.py "which e-bikes get a fresh battery first?"

It starts `skillbus mcp`. With SKILLS_URL it asks a gateway instead, such as
http://127.0.0.1:8765/mcp, with the token of SKILLS_TOKEN. It takes only `pip install mcp`.
"""

import asyncio
import os
import sys

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


def server():
    """The way to the server."""
    url = os.environ.get("SKILLS_URL")
    if url is None:
        environment = {k: v for k, v in os.environ.items() if k.startswith("SKILLBUS_")}
        parameters = StdioServerParameters(command="skillbus", args=["mcp"], env=environment)
        return stdio_client(parameters)
    token = os.environ.get("SKILLS_TOKEN", "")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return streamable_http_client(url, http_client=httpx2.AsyncClient(headers=headers, timeout=60))


async def main() -> None:
    """List the tools, call one, and print what it says."""
    async with Client(server()) as client:
        tools = await client.list_tools()
        print("tools:", ", ".join(tool.name for tool in tools.tools))
        arguments = {"task": sys.argv[1], "budget": 1000, "top": 1}
        result = await client.call_tool("find_skills", arguments)
    print(result.content[0].text)
    sys.exit(1 if result.is_error else 0)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit('usage: python ask_mcp.py "TASK"')
    asyncio.run(main())
