"""The clients for asyncio: librdkafka blocks, so its calls run in threads."""
