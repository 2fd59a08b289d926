"""The command line: one command, `forebay`, with one file per verb."""
