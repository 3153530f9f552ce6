"""The document that describes the API says what the API does."""

from __future__ import annotations

from typing import Any

from tests.control.support.client import Client

ROUTES = {
    "/v1/status": {"get"},
    "/v1/jobs": {"get", "post"},
    "/v1/jobs/{id}": {"get", "put", "delete"},
    "/v1/jobs/{id}/pause": {"post"},
    "/v1/jobs/{id}/resume": {"post"},
    "/v1/jobs/{id}/run": {"post"},
    "/v1/jobs/{id}/next": {"get"},
    "/v1/jobs/{id}/why": {"get"},
    "/v1/jobs/{id}/audit": {"get"},
    "/v1/jobs/{id}/skip-next": {"post"},
    "/v1/runs": {"get"},
    "/v1/runs/{id}": {"get"},
    "/v1/runs/{id}/cancel": {"post"},
    "/v1/runs/{id}/retry": {"post"},
    "/v1/runs/{id}/retry-now": {"post"},
    "/v1/runs/{id}/items": {"get"},
    "/v1/runs/{id}/items/{key}": {"post"},
    "/v1/runs/{id}/output": {"get"},
    "/v1/pause": {"post"},
    "/v1/resume": {"post"},
    "/v1/events": {"get"},
    "/v1/preview": {"post"},
    "/v1/reload": {"post"},
    "/healthz": {"get"},
    "/readyz": {"get"},
    "/metrics": {"get"},
}


def references(value: Any) -> set[str]:
    """Every schema that something in the document refers to."""
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(references, value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()


async def test_the_document_has_every_route_of_this_version(client: Client) -> None:
    """Paths and methods are those of the contract, no more and no less."""
    document = await client.value("/openapi.json")

    assert {path: set(methods) for path, methods in document["paths"].items()} == ROUTES


async def test_every_reference_leads_somewhere(client: Client) -> None:
    """No schema is missing, and the framework's own shape of errors is not promised."""
    document = await client.value("/openapi.json")
    schemas = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}

    assert references(document) <= schemas
    assert "#/components/schemas/HTTPValidationError" not in schemas


async def test_every_route_may_answer_with_a_problem(client: Client) -> None:
    """Refusals are described as problem details for each operation."""
    document = await client.value("/openapi.json")

    for methods in document["paths"].values():
        for operation in methods.values():
            refusal = operation["responses"]["default"]["content"]
            assert list(refusal) == ["application/problem+json"]
            assert "422" not in operation["responses"]


async def test_answers_have_the_members_that_are_promised(client: Client) -> None:
    """A job, a status and a problem have exactly the members of their schemas."""
    document = await client.value("/openapi.json")

    def members(name: str, key: str = "required") -> set[str]:
        return set(document["components"]["schemas"][name][key])

    assert members("Job") == set(await client.value("/v1/jobs/nightly"))
    assert members("Status") == set(await client.value("/v1/status"))
    assert (
        members("Problem")
        <= set((await client.get("/v1/jobs/absent")).json)
        <= members("Problem", "properties")
    )


async def test_output_is_told_to_be_text_or_records(client: Client) -> None:
    """What `format` may ask for has its media type in the document."""
    document = await client.value("/openapi.json")
    answer = document["paths"]["/v1/runs/{id}/output"]["get"]["responses"]["200"]

    assert set(answer["content"]) == {"text/plain", "application/jsonl"}
