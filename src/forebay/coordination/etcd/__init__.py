"""The store on etcd, through its JSON gateway: plain HTTP, which every etcd server speaks besides gRPC."""
