"""ShareFetch and ShareAcknowledge: the requests of members, from acknowledgements to the records acquired."""
