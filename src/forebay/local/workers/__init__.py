"""Several brokers on this host under one parent process: `forebay serve --workers`."""
