"""Refusals of requests about the cluster as a whole, where one error code is not enough."""

from __future__ import annotations

from typing import Any

from forebay.core.guards.guard import explanation
from forebay.errors import ErrorCode
from forebay.wire.messages import alter_client_quotas as quotas
from forebay.wire.messages import alter_replica_log_dirs as moving
from forebay.wire.messages import alter_user_scram_credentials as credentials
from forebay.wire.messages import create_acls, delete_acls
from forebay.wire.messages import elect_leaders as electing


def refuse_create_acls(request: create_acls.CreateAclsRequest, code: ErrorCode) -> Any:
    denied = create_acls.AclCreationResult(error_code=code, error_message=explanation(code))
    return create_acls.CreateAclsResponse(results=[denied] * len(request.creations))


def refuse_delete_acls(request: delete_acls.DeleteAclsRequest, code: ErrorCode) -> Any:
    denied = delete_acls.DeleteAclsFilterResult(error_code=code, error_message=explanation(code))
    return delete_acls.DeleteAclsResponse(filter_results=[denied] * len(request.filters))


def refuse_alter_replica_log_dirs(request: moving.AlterReplicaLogDirsRequest, code: ErrorCode) -> Any:
    return moving.AlterReplicaLogDirsResponse(
        results=[
            moving.AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    moving.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    for index in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


def refuse_elect_leaders(request: electing.ElectLeadersRequest, code: ErrorCode) -> Any:
    """Version 0 can report errors only with each partition."""
    return electing.ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            electing.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    electing.PartitionResult(
                        partition_id=index, error_code=code, error_message=explanation(code)
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def refuse_alter_client_quotas(request: quotas.AlterClientQuotasRequest, code: ErrorCode) -> Any:
    return quotas.AlterClientQuotasResponse(
        entries=[
            quotas.ResponseEntryData(entity=entry.entity, error_code=code, error_message=explanation(code))
            for entry in request.entries
        ]
    )


def refuse_alter_credentials(request: credentials.AlterUserScramCredentialsRequest, code: ErrorCode) -> Any:
    users = dict.fromkeys(
        [deletion.name for deletion in request.deletions]
        + [upsertion.name for upsertion in request.upsertions]
    )
    return credentials.AlterUserScramCredentialsResponse(
        results=[
            credentials.AlterUserScramCredentialsResult(
                user=user, error_code=code, error_message=explanation(code)
            )
            for user in users
        ]
    )
