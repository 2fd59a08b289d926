"""Queues: each message goes to one worker of a share group, which accepts, releases or rejects it.

messages        a message under a lock, and what becomes of it
group_settings  the settings of the share group
receiver        a member of the group, on confluent-kafka's ShareConsumer
queue           for programs: receive and send
async_queue     the same for asyncio
work            a function per message, several at a time
worker          the decorator that makes a program of a function
"""
