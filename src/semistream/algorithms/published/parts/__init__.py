"""Parts that published algorithms share: a page cache, the cache inequality, queues, a router."""
