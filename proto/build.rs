//! Compiles the schemas with protox: no `protoc` is needed on the machine.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let federation = protox::compile(["fl/v1/federation.proto", "fl/v1/enrollment.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .bytes(".")
        .disable_comments(["."])
        .codec_path("crate::codec::WireCodec")
        .compile_fds(federation)?;
    if std::env::var_os("CARGO_FEATURE_OTLP").is_none() {
        return Ok(());
    }
    let traces = protox::compile(["otlp/trace.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .build_server(false)
        .disable_comments(["."])
        .compile_fds(traces)?;
    Ok(())
}
