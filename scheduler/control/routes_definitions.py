"""Definitions of jobs that live in the daemon: create, replace, remove. Those of files stay the files'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias

from fastapi import APIRouter, Body, Header, Query, Response
from pydantic import WithJsonSchema

from scheduler.control import models as api
from scheduler.control.answers import Answers
from scheduler.control.asking import Administering, JobPath
from scheduler.control.keys import answering
from scheduler.control.links import OF_A_NEW_JOB
from scheduler.control.other_users import check_user
from scheduler.control.ports import Operations, ParseDefinition
from scheduler.control.requests import Nothing
from scheduler.control.views import Views, job_and_runs
from scheduler.errors import Conflict, Fault, Invalid, PreconditionRequired, Stale
from scheduler.model.jobs import Job, JobId, Origin
from scheduler.store.protocol import Reads
from scheduler.store.values import ChangeKind, DefinitionChange, Operated

_DEFINITION_SCHEMA: Final = {
    "type": "object",
    "description": "The keys of a job file for one job (`cron`, `command`, …), or {id, definition: keys}.",
    "additionalProperties": True,
}
_NEW_SCHEMA: Final = {
    **_DEFINITION_SCHEMA,
    "required": ["id"],
    "properties": {"id": {"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,63}$"}},
}
Table: TypeAlias = Annotated[dict[str, Any], WithJsonSchema(_DEFINITION_SCHEMA), Body()]
NewTable: TypeAlias = Annotated[dict[str, Any], WithJsonSchema(_NEW_SCHEMA), Body()]


class DefinitionRoutes:
    """POST /v1/jobs, PUT and DELETE /v1/jobs/{id}."""

    def __init__(
        self, operations: Operations, reads: Reads, views: Views, parse_definition: ParseDefinition
    ) -> None:
        self._operations = operations
        self._reads = reads
        self._views = views
        self._parse = parse_definition
        self._answers = Answers(views)

    def register(self, router: APIRouter) -> None:
        """The routes are part of the router."""
        router.post("/v1/jobs", status_code=201, responses=dict(OF_A_NEW_JOB))(self.create)
        router.put("/v1/jobs/{id}")(self.replace)
        router.delete("/v1/jobs/{id}")(self.remove)

    async def create(
        self, _: Annotated[Nothing, Query()], peer: Administering, body: NewTable, response: Response
    ) -> api.Job:
        """A new job; its id is a member of the body."""
        id = body.get("id")
        if not isinstance(id, str):
            message = "write the id of the job, for example nightly-export"
            raise Invalid(f"id: {message}", faults=[Fault(key="id", message=message)])
        definition = self._parse(JobId(id), _keys(id, body))
        check_user(definition, peer)
        change = DefinitionChange(
            kind=ChangeKind.ADD,
            job_id=definition.id,
            origin=Origin.API,
            peer=answering(peer, self._answers.created),
            definition=definition,
        )
        done = await self._operations.apply(change)
        response.headers["Location"] = f"/v1/jobs/{definition.id}"
        return await self._shown(done, response)

    async def replace(
        self,
        id: JobPath,
        _: Annotated[Nothing, Query()],
        peer: Administering,
        body: Table,
        response: Response,
        if_match: Annotated[str | None, Header(description="the ETag of the definition to replace")] = None,
    ) -> api.Job:
        """Another definition for a job; its pause and its history stay."""
        seen = (await self._reads.job(id)).job
        definition = self._parse(id, _keys(id, body))
        _refuse_file(seen)
        check_user(seen.definition, peer)
        check_user(definition, peer)
        change = DefinitionChange(
            kind=ChangeKind.CHANGE,
            job_id=id,
            origin=Origin.API,
            peer=answering(peer, self._answers.replaced),
            definition=definition,
            expects=_expected(seen, if_match),
        )
        return await self._shown(await self._operations.apply(change), response)

    async def remove(
        self, id: JobPath, _: Annotated[Nothing, Query()], peer: Administering
    ) -> api.JobAndRuns:
        """The job is gone; its live run finishes, its history stays."""
        asking = answering(peer, self._answers.job_and_runs)
        change = DefinitionChange(kind=ChangeKind.REMOVE, job_id=id, origin=Origin.API, peer=asking)
        return await job_and_runs(self._views, self._reads, await self._operations.apply(change))

    async def _shown(self, done: Operated, response: Response) -> api.Job:
        response.headers["ETag"] = f'"{done.job.definition_revision}"'
        return (await job_and_runs(self._views, self._reads, done)).job


def _keys(id: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The keys of the job file: the body itself, or its member `definition`, the way a job is shown."""
    rest = {key: value for key, value in body.items() if key != "id"}
    faults = []
    if body.get("id", id) != id:
        faults.append(
            Fault(key="id", message=f"it is the id of another job than {id}: a job cannot be renamed")
        )
    if "definition" in rest:
        faults += [
            Fault(key=key, message="write it inside of definition") for key in rest if key != "definition"
        ]
        if not isinstance(rest["definition"], dict):
            faults.append(Fault(key="definition", message="write a JSON object here"))
    if faults:
        raise Invalid("; ".join(f"{fault.key}: {fault.message}" for fault in faults), faults=faults)
    keys: Mapping[str, Any] = rest.get("definition", rest)
    return keys


def _refuse_file(job: Job) -> None:
    """The job is not one of a file: that is told before a precondition is asked for, which would not help."""
    if job.origin is Origin.FILE:
        raise Conflict(
            f"job {job.id} comes from {job.origin_file}", hint=f"edit {job.origin_file}, then reload"
        )


def _expected(job: Job, if_match: str | None) -> int | None:
    """The revision that the store has to find; None where the client takes any (`*`).

    Raises:
        PreconditionRequired: the client names none.
        Stale: it names another one than the live one.
    """
    if if_match is None:
        raise PreconditionRequired(
            f"a replacement of job {job.id} has to name the definition that it replaces",
            hint="send its ETag as If-Match, as GET of the job shows it",
        )
    tags = {tag.strip().removeprefix("W/") for tag in if_match.split(",")}
    if tags == {"*"}:
        return None
    if f'"{job.definition_revision}"' not in tags:
        raise Stale(
            f"the definition of job {job.id} is revision {job.definition_revision} by now",
            hint="get the job, put your change on top of what it is now, and send that",
        )
    return job.definition_revision
