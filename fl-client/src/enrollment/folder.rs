//! The folder of a client.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use fl_proto::{
    ClientId, Fingerprint, Issued, NewKey, SignedCertificate, certificate_pem, certificates_of, open_regular,
};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use super::signed::{Enrollment, checked};
use crate::error::Error;
use crate::identity::{IdentityFiles, own_fault, promote, save_next_certificate, save_next_key};

#[derive(Debug, Clone)]
pub(crate) struct ClientFolder {
    path: PathBuf,
    files: IdentityFiles,
    /// Whether another key and certificate take the place of those in the folder.
    again: bool,
}

const MAX_FILE: u64 = 64 * 1024;

impl ClientFolder {
    /// The folder at `path` with the usual names of files. `again`: whether another key and certificate take the place of those in
    /// it. `fault`: for tests.
    pub(crate) fn new(path: &Path, fault: Option<crate::identity::Fault>, again: bool) -> Self {
        Self {
            path: path.to_owned(),
            again,
            files: IdentityFiles {
                fault: fault.map(std::sync::Arc::new),
                ..IdentityFiles::new(
                    path.join("authority.pem"),
                    path.join("client.pem"),
                    path.join("client.key"),
                )
            },
        }
    }

    fn refuse_a_file(&self) -> Result<(), Error> {
        if !self.path.is_file() {
            return Ok(());
        }
        let path = self.path.display();
        Err(Error::Config(format!(
            "{path} is a file; name a folder for key, certificate and client.toml, which is created if it is missing"
        )))
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.path.join("client.toml")
    }

    /// Creates the folder if it is missing. Leaves the mode of an existing one: it may be the user's home.
    pub(super) fn create(&self) -> Result<(), Error> {
        if self.path.is_dir() {
            return Ok(());
        }
        fl_proto::make_private_folder(&self.path).map_err(|error| Error::io(&self.path, "create the folder", &error))
    }

    /// The certificate and key, if the folder has both.
    pub(crate) fn issued(&self) -> Result<Option<Issued>, Error> {
        self.refuse_a_file()?;
        match (self.read(&self.files.certificate)?, self.read(&self.files.key)?) {
            (Some(certificate), Some(key)) => Ok(Some(Issued {
                certificate: certificate.to_string(),
                key: key.to_string(),
            })),
            _ => Ok(None),
        }
    }

    pub(crate) fn fault(&self, own: &Issued) -> Option<String> {
        match self.read(&self.files.authority) {
            Ok(Some(authority)) => own_fault(own, &authority, OffsetDateTime::now_utc()),
            Ok(None) => Some(format!("{} is missing", self.files.authority.display())),
            Err(error) => Some(error.to_string()),
        }
    }

    /// This device's key: that of an attempt before, or a new one, which is on disk when this returns.
    pub(crate) fn key(&self) -> Result<NewKey, Error> {
        let path = self.key_file();
        match self.read(&path)? {
            Some(pem) => NewKey::from_pem(&pem).map_err(|error| {
                let path = path.display();
                Error::Config(format!(
                    "{path} is not a key that can be enrolled ({error}); move it away and type the command again"
                ))
            }),
            None => {
                let key = NewKey::generate().map_err(|error| Error::Config(format!("no key can be made: {error}")))?;
                self.files.write(&path, &Zeroizing::new(key.to_pem()))?;
                Ok(key)
            }
        }
    }

    /// Where the key is until the certificate has come: that in use stays until then.
    fn key_file(&self) -> PathBuf {
        if self.again {
            return self.files.key.with_extension("key.again");
        }
        self.files.key.clone()
    }

    /// Writes what the server signed; the certificate last. A client.toml that exists stays as it is.
    pub(crate) fn write(&self, signed: &SignedCertificate, settings: &str) -> Result<(), Error> {
        let authorities: String = signed.authorities.iter().map(|der| certificate_pem(der)).collect();
        self.files.write(&self.files.authority, &authorities)?;
        let config = self.config();
        if config.symlink_metadata().is_err() {
            self.files.write(&config, settings)?;
        }
        let certificate = certificate_pem(&signed.certificate);
        if !self.again {
            return self.files.write(&self.files.certificate, &certificate);
        }
        save_next_key(&self.files, &self.key()?)?;
        save_next_certificate(&self.files, &certificate)?;
        promote(&self.files)?;
        let key = self.key_file();
        std::fs::remove_file(&key).map_err(|error| Error::io(&key, "remove", &error))
    }

    /// Writes a signing request for this folder's key, `client.csr`. Returns its path and the key's fingerprint.
    pub(crate) fn request(&self, name: Option<&ClientId>) -> Result<(PathBuf, String), Error> {
        self.create()?;
        let key = self.key()?;
        let request = key.request_pem(name);
        let request = request.map_err(|error| Error::Config(format!("no request can be made: {error}")))?;
        let path = self.path.join("client.csr");
        self.files.write(&path, &request)?;
        Ok((path, key.key().to_string()))
    }

    /// Takes the certificate that `fl-server sign` made for this folder's key, in the file `signed`.
    pub(crate) fn install(&self, signed: &Path, settings: &str) -> Result<Enrollment, Error> {
        let shown = signed.display();
        let wrong = |why: &dyn std::fmt::Display| {
            Error::Config(format!(
                "{shown} is not what `fl-server sign` wrote for this device: {why}"
            ))
        };
        let pem = self.read(signed)?.ok_or_else(|| wrong(&"it does not exist"))?;
        if self.read(&self.files.key)?.is_none() {
            let key = self.files.key.display();
            return Err(Error::Config(format!(
                "{key} is missing; `fl-client request` makes it, and the request for it"
            )));
        }
        let mut all = certificates_of(&pem).map_err(|error| wrong(&error))?;
        if all.len() < 2 {
            return Err(wrong(&"it must hold the certificate and the authority's"));
        }
        let certificate = all.remove(0);
        let authority = Fingerprint::of(&all[0]);
        let signed = SignedCertificate {
            certificate,
            authorities: all,
        };
        let key = self.key()?;
        let done = checked(&signed, &key, authority).map_err(|error| wrong(&error))?;
        self.write(&signed, settings)?;
        Ok(done)
    }

    fn read(&self, path: &Path) -> Result<Option<Zeroizing<String>>, Error> {
        let failed = |error: std::io::Error| Error::io(path, "read", &error);
        let file = match open_regular(File::options().read(true), path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file.map_err(failed)?,
        };
        let mut text = Zeroizing::new(String::with_capacity(4096));
        file.take(MAX_FILE).read_to_string(&mut text).map_err(failed)?;
        Ok(Some(text))
    }
}
