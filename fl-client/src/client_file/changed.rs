//! What a client.toml changes that a running client cannot.

use super::ClientFile;

impl ClientFile {
    /// Keys whose values differ in `other`, except for those that a running client takes over.
    pub(crate) fn changed_keys(&self, other: &Self) -> Vec<&'static str> {
        let config = &self.config;
        let now = &other.config;
        [
            ("state", config.state != now.state),
            ("models", config.models != now.models),
            ("device", self.device != other.device),
            ("sync", config.sync != now.sync),
            ("keep_model_every", config.keep_model_every != now.keep_model_every),
            ("otlp", config.otlp != now.otlp),
            ("limits.cpus", config.limits.cpus != now.limits.cpus),
            ("limits.nice", config.limits.nice != now.limits.nice),
            ("tasks", self.tasks != other.tasks),
        ]
        .into_iter()
        .filter_map(|(key, changed)| changed.then_some(key))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::named::TrainersOnly;

    #[test]
    fn only_keys_that_take_a_restart_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("client.toml");
        let read = |text: &str| {
            let task = "[tasks.digits]\nlearner = { command = ['sh'] }";
            std::fs::write(&path, format!("{text}\n{task}\n")).unwrap();
            ClientFile::read_offline(&path, &TrainersOnly, None).unwrap().0
        };
        let plain = read("");
        let taken_over = "server = 'b:1'\nmax_update_bytes = 9\ngive_up_after_s = 5\n[when]\nhours = '01:00-02:00'\n\
                          [limits]\nupload = '1Mbit/s'\nper_day = '1MiB'";
        assert!(plain.changed_keys(&read(taken_over)).is_empty());
        let restart = "state = 'other'\ndevice = 'cpu'\nsync = false\nkeep_model_every = 1\notlp = 'http://a:4317'\n\
                       [limits]\ncpus = 1\nnice = 2\n[tasks.other]\nlearner = { command = ['sh'] }";
        let keys = [
            "state",
            "device",
            "sync",
            "keep_model_every",
            "otlp",
            "limits.cpus",
            "limits.nice",
            "tasks",
        ];
        let path = folder.path().join("other.toml");
        std::fs::write(&path, restart).unwrap();
        let other = ClientFile::read_offline(&path, &TrainersOnly, Some("other")).unwrap().0;
        assert_eq!(plain.changed_keys(&other), keys);
    }
}
