//! Clients of other minor versions of the protocol.

use crate::support::*;
use fl_proto::PROTOCOL_MINOR;
use fl_server::Ending;

#[tokio::test]
async fn older_clients_and_a_newer_one_take_part_in_one_run() {
    for oldest in [0, 3] {
        let fed = Fed::new();
        let server = fed.start(&Run::default()).await;
        let mut clients = Vec::new();
        for (name, minor) in NAMES.iter().zip([oldest, oldest + 1, PROTOCOL_MINOR + 1]) {
            let mut client = TestClient::dial(&server.address, &fed.root.certificate, &fed.issue(name))
                .await
                .unwrap();
            client.minor = minor;
            clients.push(client.joined(name).await);
        }
        all_take_part(&mut clients).await;
        drop(clients);
        assert_eq!(server.end().await.ending, Ending::Done, "{oldest}");
        assert!(fed.ledger().is_balanced(), "{oldest}");
    }
}
