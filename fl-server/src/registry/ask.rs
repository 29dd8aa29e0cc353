//! What operators ask of the registry, on the command line.

use std::collections::BTreeSet;

use fl_compress::Digest;
use fl_proto::{ClientId, Fingerprint, Role};
use serde::{Deserialize, Serialize};

use crate::clock::Millis;
use crate::registry::NamePattern;
use crate::registry::book::Registry;
use crate::registry::client::{CertificateRecord, ClientRecord, MAX_TAG, MAX_TAGS, Revocation};
use crate::registry::signer::Signer;
use crate::registry::token::{Closed, MAX_TOKENS, Stage, Token, text};
use crate::storage::store::StoreError;

/// A question or a change.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum RegistryAsk {
    /// Opens a token.
    Open(NewToken),
    Tokens,
    RevokeToken {
        id: String,
    },
    Clients,
    /// Revokes a client, or one certificate.
    Revoke {
        what: Revoked,
        why: String,
    },
    Restore {
        what: Revoked,
    },
    Tag {
        name: String,
        add: Vec<String>,
        remove: Vec<String>,
    },
    /// Forgets a client: its name is free.
    Forget {
        name: String,
    },
    /// Answers a device that waits for approval.
    Approve {
        name: String,
        approve: bool,
    },
}

/// A token to open.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewToken {
    #[serde(with = "text")]
    pub(crate) secret: Digest,
    pub(crate) names: NamePattern,
    pub(crate) role: Role,
    pub(crate) uses: u32,
    /// In milliseconds.
    pub(crate) ttl: Millis,
    pub(crate) lifetime: Millis,
    pub(crate) approve: bool,
    pub(crate) again: bool,
}

/// A name or the fingerprint of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Revoked {
    Client(#[serde(with = "text")] ClientId),
    Certificate(#[serde(with = "text")] Fingerprint),
}

/// An answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RegistryAnswer {
    Tokens(Vec<TokenLine>),
    Clients(Vec<ClientLine>),
    /// What was done.
    Done(String),
}

/// A token, for operators.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TokenLine {
    pub(crate) id: String,
    pub(crate) names: String,
    pub(crate) role: Role,
    /// `open`, `used`, `expired` or `revoked`.
    pub(crate) state: String,
    pub(crate) uses: u32,
    pub(crate) used: u32,
    pub(crate) created_ms: Millis,
    pub(crate) expires_ms: Millis,
    pub(crate) approve: bool,
}

/// A client, for operators.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ClientLine {
    pub(crate) name: String,
    /// `active`, `revoked`, `expired`, `new` if it has not joined yet, or `waits for approval`.
    pub(crate) state: String,
    /// The words of a device that waits for approval.
    pub(crate) words: Option<String>,
    #[serde(flatten)]
    pub(crate) record: ClientRecord,
}

impl Registry {
    /// Answers an operator. Blocks: a change is durable.
    ///
    /// # Errors
    /// Why it cannot be done, for a person.
    pub(crate) fn answer(&mut self, ask: &RegistryAsk, signer: &Signer, now: Millis) -> Result<RegistryAnswer, String> {
        let done = |text: String| Ok(RegistryAnswer::Done(text));
        match ask {
            RegistryAsk::Open(new) => done(self.open_token(new, now)?),
            RegistryAsk::Tokens => Ok(RegistryAnswer::Tokens(self.token_lines(now))),
            RegistryAsk::RevokeToken { id } => done(self.revoke_token(id, now)?),
            RegistryAsk::Clients => Ok(RegistryAnswer::Clients(self.client_lines(signer, now))),
            RegistryAsk::Revoke { what, why } => done(self.revoke(what, why, now)?),
            RegistryAsk::Restore { what } => done(self.restore(what)?),
            RegistryAsk::Tag { name, add, remove } => done(self.tag(name, add, remove)?),
            RegistryAsk::Forget { name } => done(self.forget(name)?),
            RegistryAsk::Approve { name, approve } => done(self.approve(name, *approve, signer)?),
        }
    }

    fn open_token(&mut self, new: &NewToken, now: Millis) -> Result<String, String> {
        if let NamePattern::One(name) = &new.names
            && let Some(client) = self.clients.get(name)
        {
            if client.revoked.is_some() {
                return Err(format!(
                    "`{name}` is revoked; admit it again with `fl-server clients restore {name}`"
                ));
            }
            if !new.again {
                return Err(format!(
                    "`{name}` is enrolled already; for a device that is lost or set up again, add `--again`: its certificate is \
                     refused once the new one is used"
                ));
            }
        }
        let closed = |token: &Token| token.closed(now).is_some_and(|closed| closed != Closed::Used);
        // A line that was used tells a second device by whom, until there is no room.
        self.tokens
            .retain(|_, token| !closed(token) || token.expires.saturating_add(90 * 24 * 3_600_000) > now);
        if let NamePattern::One(name) = &new.names
            && new.uses > 1
        {
            return Err(format!(
                "one device has the name `{name}`: leave out `--uses`, or give a pattern such as `{name}-*`"
            ));
        }
        if self.tokens.len() >= MAX_TOKENS {
            return Err(format!(
                "{MAX_TOKENS} tokens are stored; revoke some: `fl-server tokens list` shows them"
            ));
        }
        let token = Token {
            secret: new.secret,
            names: new.names.clone(),
            role: new.role,
            uses: new.uses.clamp(1, super::token::MAX_USES),
            created: now,
            expires: now.saturating_add(new.ttl),
            lifetime: new.lifetime,
            approve: new.approve,
            again: new.again,
            revoked: None,
            taken: Vec::new(),
        };
        let id = Token::id(&new.secret);
        self.tokens.insert(id.clone(), token);
        self.save(&[&id], &[]).map_err(stored)?;
        Ok(id)
    }

    fn token_lines(&self, now: Millis) -> Vec<TokenLine> {
        let line = |(id, token): (&String, &Token)| TokenLine {
            id: id.clone(),
            names: token.names.to_string(),
            role: token.role,
            state: match token.closed(now) {
                None => "open",
                Some(Closed::Used) => "used",
                Some(Closed::Expired(_)) => "expired",
                Some(Closed::Revoked(_)) => "revoked",
            }
            .to_owned(),
            uses: token.uses,
            used: token.taken.len() as u32,
            created_ms: token.created,
            expires_ms: token.expires,
            approve: token.approve,
        };
        let mut lines: Vec<_> = self.tokens.iter().map(line).collect();
        lines.sort_by_key(|line| std::cmp::Reverse(line.created_ms));
        lines
    }

    fn revoke_token(&mut self, id: &str, now: Millis) -> Result<String, String> {
        let token = self.tokens.get_mut(id);
        let token = token.ok_or_else(|| format!("there is no token `{id}`; `fl-server tokens list` shows them"))?;
        token.revoked.get_or_insert(now);
        self.save(&[id], &[]).map_err(stored)?;
        Ok(format!("token {id} is revoked; clients that it enrolled stay enrolled"))
    }

    fn client_lines(&self, signer: &Signer, now: Millis) -> Vec<ClientLine> {
        let held = self.tokens.values().flat_map(|token| &token.taken);
        let held = held.filter(|one| one.stage == Stage::Held).map(|one| ClientLine {
            name: one.name.to_string(),
            state: "waits for approval".to_owned(),
            words: self.words(&one.key, signer).ok(),
            record: ClientRecord {
                address: one.address.clone(),
                ..ClientRecord::default()
            },
        });
        let known = self.clients.iter().map(|(name, client)| {
            let newest = client.certificates.iter().map(|one| one.expires).max();
            let state = match client {
                ClientRecord { revoked: Some(_), .. } => "revoked",
                _ if newest.is_some_and(|expires| expires <= now) => "expired",
                ClientRecord { last_seen: None, .. } => "new",
                _ => "active",
            };
            // Certificates are not secret, but nobody reads them here.
            let mut record = client.clone();
            record.certificates.iter_mut().for_each(|one| one.pem = None);
            ClientLine {
                name: name.to_string(),
                state: state.to_owned(),
                words: None,
                record,
            }
        });
        held.chain(known).collect()
    }

    fn revoke(&mut self, what: &Revoked, why: &str, now: Millis) -> Result<String, String> {
        let revocation = Revocation {
            at: now,
            why: why.chars().filter(|c| !c.is_control()).take(200).collect(),
        };
        match what {
            Revoked::Client(name) => {
                // Also a client that is not known yet, whose certificate `fl-server issue` made.
                self.clients.entry(name.clone()).or_default().revoked = Some(revocation);
                self.save(&[], &[name]).map_err(stored)?;
                Ok(format!("`{name}` is revoked; its connections end within a second"))
            }
            Revoked::Certificate(fingerprint) => {
                let (name, certificate) = self.certificate(fingerprint)?;
                certificate.revoked = Some(revocation);
                self.save(&[], &[&name]).map_err(stored)?;
                Ok(format!(
                    "certificate {fingerprint} of `{name}` is revoked; other certificates of `{name}` stay valid"
                ))
            }
        }
    }

    fn restore(&mut self, what: &Revoked) -> Result<String, String> {
        match what {
            Revoked::Client(name) => {
                let client = self.known(name.as_str())?.1;
                if client.revoked.take().is_none() {
                    return Err(format!("`{name}` is not revoked"));
                }
                self.save(&[], &[name]).map_err(stored)?;
                Ok(format!("`{name}` is admitted again"))
            }
            Revoked::Certificate(fingerprint) => {
                let (name, certificate) = self.certificate(fingerprint)?;
                if certificate.revoked.take().is_none() {
                    return Err(format!("certificate {fingerprint} is not revoked"));
                }
                self.save(&[], &[&name]).map_err(stored)?;
                Ok(format!("certificate {fingerprint} of `{name}` is valid again"))
            }
        }
    }

    fn tag(&mut self, name: &str, add: &[String], remove: &[String]) -> Result<String, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/=".contains(c);
        if let Some(bad) = add
            .iter()
            .find(|tag| tag.is_empty() || tag.len() > MAX_TAG || !tag.chars().all(plain))
        {
            return Err(format!(
                "tag `{bad}` must be 1 to {MAX_TAG} letters, digits, `-`, `_`, `.`, `:`, `/` or `=`"
            ));
        }
        let (name, client) = self.known(name)?;
        let mut tags: BTreeSet<String> = client
            .tags
            .iter()
            .filter(|tag| !remove.contains(tag))
            .cloned()
            .collect();
        tags.extend(add.iter().cloned());
        if tags.len() > MAX_TAGS {
            return Err(format!("a client has at most {MAX_TAGS} tags"));
        }
        client.tags = tags.clone();
        self.save(&[], &[&name]).map_err(stored)?;
        let tags: Vec<_> = tags.into_iter().collect();
        Ok(match tags.as_slice() {
            [] => format!("`{name}` has no tags"),
            tags => format!("`{name}` has the tags {}", tags.join(", ")),
        })
    }

    fn forget(&mut self, name: &str) -> Result<String, String> {
        let (name, client) = self.known(name)?;
        if client.revoked.is_some() {
            return Err(format!(
                "`{name}` is revoked, and a forgotten client would be admitted again; restore it first, or leave it revoked"
            ));
        }
        self.clients.remove(&name);
        self.save(&[], &[&name]).map_err(stored)?;
        Ok(format!(
            "`{name}` is forgotten; a device that has a valid certificate of this name is admitted and listed again when it joins"
        ))
    }

    fn approve(&mut self, name: &str, approve: bool, signer: &Signer) -> Result<String, String> {
        let held = self.tokens.iter().find_map(|(id, token)| {
            let held = |one: &super::token::Use| one.name.as_str() == name && one.stage == Stage::Held;
            Some((id.clone(), token.taken.iter().position(held)?))
        });
        let (id, at) = held.ok_or_else(|| {
            format!("no device waits for the name `{name}`; `fl-server clients list` shows those that do")
        })?;
        let mut words = String::new();
        if let Some(one) = self.tokens.get_mut(&id).and_then(|token| token.taken.get_mut(at)) {
            one.stage = if approve { Stage::Approved } else { Stage::Denied };
            let key = one.key;
            words = self.words(&key, signer).unwrap_or_default();
        }
        self.save(&[&id], &[]).map_err(stored)?;
        Ok(match approve {
            true => format!("`{name}` is approved: {words}"),
            false => format!("`{name}` is denied: {words}"),
        })
    }

    fn known(&mut self, name: &str) -> Result<(ClientId, &mut ClientRecord), String> {
        let unknown = || format!("there is no client `{name}`; `fl-server clients list` shows them");
        let name: ClientId = name.parse().map_err(|_| unknown())?;
        let client = self.clients.get_mut(&name).ok_or_else(unknown)?;
        Ok((name, client))
    }

    fn certificate(&mut self, fingerprint: &Fingerprint) -> Result<(ClientId, &mut CertificateRecord), String> {
        let of = |(name, client)| {
            let client: &mut ClientRecord = client;
            let certificate = client
                .certificates
                .iter_mut()
                .find(|one| one.fingerprint == *fingerprint);
            certificate.map(|certificate| (ClientId::clone(name), certificate))
        };
        let found = self.clients.iter_mut().find_map(of);
        found.ok_or_else(|| {
            format!("no client has certificate {fingerprint}; to revoke one that the registry does not know, add a line to the file `revoked`")
        })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn stored(error: StoreError) -> String {
    format!("the registry cannot be stored: {error}")
}
