"""Settings of Kafka 4.3 that do not exist here, and that a running broker refuses.

All other unknown names are kept, see `lookup.altered_broker_definition`.
"""

from __future__ import annotations

_KAFKA_READ_ONLY = """
add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
alter.config.policy.class.name alter.log.dirs.replication.quota.window.num
alter.log.dirs.replication.quota.window.size.seconds broker.heartbeat.interval.ms
broker.session.timeout.ms client.quota.callback.class controller.listener.names
controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
controller.quorum.append.linger.ms controller.quorum.auto.join.enable
controller.quorum.bootstrap.servers controller.quorum.election.backoff.max.ms
controller.quorum.election.timeout.ms controller.quorum.fetch.max.bytes
controller.quorum.fetch.snapshot.max.bytes controller.quorum.fetch.timeout.ms
controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms controller.quorum.voters
controller.socket.timeout.ms create.topic.policy.class.name
delete.records.purgatory.purge.interval.requests early.start.listeners
fetch.purgatory.purge.interval.requests group.consumer.max.assignment.interval.ms
group.consumer.migration.policy group.consumer.min.assignment.interval.ms
group.consumer.regex.refresh.interval.ms group.coordinator.append.linger.ms
group.coordinator.background.threads group.coordinator.rebalance.protocols group.coordinator.threads
group.share.assignors group.share.persister.class.name group.streams.heartbeat.interval.ms
group.streams.initial.rebalance.delay.ms group.streams.max.assignment.interval.ms
group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms group.streams.max.size
group.streams.max.standby.replicas group.streams.min.assignment.interval.ms
group.streams.min.heartbeat.interval.ms group.streams.min.session.timeout.ms
group.streams.num.standby.replicas group.streams.session.timeout.ms
initial.broker.registration.timeout.ms internal.metadata.delete.delay.millis
internal.metadata.log.segment.bytes internal.metadata.max.batch.size.in.bytes
kafka.metrics.polling.interval.secs kafka.metrics.reporters log.dir.failure.timeout.ms
log.flush.offset.checkpoint.interval.ms log.flush.scheduler.interval.ms
log.flush.start.offset.checkpoint.interval.ms log.initial.task.delay.ms max.request.partition.size.limit
metadata.log.dir metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms
metadata.log.segment.bytes metadata.log.segment.ms metadata.max.idle.interval.ms
metadata.max.retention.bytes metadata.max.retention.ms metrics.num.samples metrics.recording.level
metrics.sample.window.ms num.replica.alter.log.dirs.threads offsets.commit.timeout.ms
offsets.load.buffer.size offsets.topic.compression.codec offsets.topic.replication.factor process.roles
producer.purgatory.purge.interval.requests queued.max.requests
remote.log.index.file.cache.ttl.ms remote.log.manager.copy.quota.window.num
remote.log.manager.copy.quota.window.size.seconds remote.log.manager.fetch.quota.window.num
remote.log.manager.fetch.quota.window.size.seconds
remote.log.manager.task.retry.jitter remote.log.manager.thread.pool.size
remote.log.metadata.custom.metadata.max.bytes remote.log.metadata.manager.class.name
remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix
remote.log.metadata.manager.listener.name
remote.log.storage.manager.class.name remote.log.storage.manager.class.path
remote.log.storage.manager.impl.prefix remote.log.storage.system.enable replica.fetch.min.bytes
replica.high.watermark.checkpoint.interval.ms replica.socket.receive.buffer.bytes
replication.quota.window.num replication.quota.window.size.seconds request.timeout.ms
sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class
sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.retry.backoff.max.ms
sasl.login.retry.backoff.ms sasl.mechanism.controller.protocol sasl.oauthbearer.assertion.algorithm
sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope
sasl.oauthbearer.scope.claim.name sasl.oauthbearer.token.endpoint.url sasl.server.callback.handler.class
security.providers server.max.startup.time.ms share.coordinator.append.linger.ms
share.coordinator.load.buffer.size share.coordinator.state.topic.compression.codec
share.coordinator.state.topic.min.isr share.coordinator.state.topic.replication.factor
share.coordinator.threads share.fetch.purgatory.purge.interval.requests
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms socket.listen.backlog.size
socket.receive.buffer.bytes socket.send.buffer.bytes ssl.allow.dn.changes ssl.allow.san.changes
telemetry.max.bytes transaction.remove.expired.transaction.cleanup.interval.ms
transaction.state.log.load.buffer.size transaction.state.log.min.isr
transaction.state.log.replication.factor transaction.two.phase.commit.enable
unclean.leader.election.interval.ms unstable.api.versions.enable unstable.feature.versions.enable
"""
KAFKA_READ_ONLY = frozenset(_KAFKA_READ_ONLY.split())
"""Kafka reads them at its start only, and refuses to alter them, too."""

_PROMISES_PROTECTION = """
principal.builder.class sasl.jaas.config ssl.cipher.suites ssl.engine.factory.class
ssl.keymanager.algorithm ssl.keystore.password ssl.protocol ssl.provider
ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.password
"""
PROMISES_PROTECTION = frozenset(_PROMISES_PROTECTION.split())
"""An administrator who sets one of them relies on it."""
