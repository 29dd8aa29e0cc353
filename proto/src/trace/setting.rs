//! The key `otlp` of server.toml and client.toml: where traces are sent, if anywhere.

use tonic::transport::Uri;

use super::export::Collector;

/// Parses the value of `otlp`; `None` for `off`.
///
/// # Errors
/// What is wrong, as the end of a sentence that names the key and its value.
pub fn collector(text: &str) -> Result<Option<Collector>, &'static str> {
    if text == "off" {
        return Ok(None);
    }
    let uri = text.parse::<Uri>().map_err(|_| RULE)?;
    let host = uri.host().is_some_and(|host| !host.is_empty());
    // A port out of range parses as no port.
    let port = uri.port_u16().is_some_and(|port| port > 0);
    let user = uri
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'));
    if uri.scheme_str() == Some("http") && host && port && !user && uri.path() == "/" && uri.query().is_none() {
        Collector::at(uri).map(Some)
    } else {
        Err(RULE)
    }
}

const RULE: &str = "it must be \"off\", or where a collector takes OTLP over gRPC as http://host:port, such as \
                    \"http://127.0.0.1:4317\"";

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(feature = "otlp"))]
    #[test]
    fn a_program_without_traces_says_how_to_build_one_with_them() {
        let why = collector("http://127.0.0.1:4317").unwrap_err();
        assert!(why.contains("--features otlp"), "{why}");
    }

    #[cfg(feature = "otlp")]
    #[test]
    fn off_is_none_and_an_address_is_http_with_host_and_port_only() {
        assert_eq!(collector("off"), Ok(None));
        for good in [
            "http://127.0.0.1:4317",
            "http://127.0.0.1:4317/",
            "http://otel.local:4317",
            "http://[::1]:4317",
        ] {
            assert!(collector(good).unwrap().is_some(), "{good}");
        }
        for bad in [
            "",
            "on",
            "127.0.0.1:4317",
            "https://127.0.0.1:4317",
            "http://127.0.0.1",
            "http://127.0.0.1:0",
            "http://127.0.0.1:99999",
            "http://:4317",
            "http://a:4317/v1/traces",
            "http://a:4317?x=1",
            "http://me:secret@a:4317",
            "http://a b:4317",
        ] {
            assert_eq!(collector(bad), Err(RULE), "{bad}");
        }
    }
}
