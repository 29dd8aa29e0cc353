//! Messages and services generated from the schema.
#![allow(missing_docs, unreachable_pub, clippy::all)]

tonic::include_proto!("fl.v1");
