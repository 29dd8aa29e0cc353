//! The compiled schemas, from which the build generates code, are those of the `.proto` files.

use prost::Message;

#[test]
fn the_compiled_schemas_are_up_to_date() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let schemas: [(&str, &[&str]); 2] = [
        (
            "federation.binpb",
            &["fl/v1/federation.proto", "fl/v1/enrollment.proto"],
        ),
        ("trace.binpb", &["otlp/trace.proto"]),
    ];
    for (name, sources) in schemas {
        let mut set = protox::compile(sources, [&folder]).unwrap();
        for file in &mut set.file {
            // Comments and places in the text: generated code has none of them.
            file.source_code_info = None;
        }
        let compiled = set.encode_to_vec();
        let path = folder.join(name);
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            std::fs::write(&path, &compiled).unwrap();
        }
        let committed = std::fs::read(&path).unwrap_or_default();
        assert!(
            committed == compiled,
            "proto/proto/{name} is not that of its sources; run: UPDATE_SCHEMA=1 cargo test -p fl-proto --test schema"
        );
    }
}
