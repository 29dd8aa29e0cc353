//! What operators ask of the registry, on the command line.

use std::collections::BTreeMap;

use fl_compress::Digest;
use fl_proto::{ClientId, Fingerprint, Role};
use serde::{Deserialize, Serialize};

use crate::clock::Millis;
use crate::registry::NamePattern;
use crate::registry::book::{Entry, Registry};
use crate::registry::client::{CertificateRecord, ClientRecord, Exclusion, MAX_TAG, MAX_TAGS};
use crate::registry::signer::Signer;
use crate::registry::token::{MAX_TOKENS, Stage, Token, TokenEnd, text};
use crate::storage::store::StoreError;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum RegistryAsk {
    Open(NewToken),
    Tokens,
    RevokeToken {
        id: String,
    },
    /// The clients after a name, in the order of names: at most [`PAGE`]. After the empty name, devices that wait come first.
    Clients {
        after: String,
    },
    Revoke {
        what: RevokeTarget,
        why: String,
    },
    Restore {
        what: RevokeTarget,
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
    /// Answers the device with this key, which waits for approval.
    Approve {
        #[serde(with = "text")]
        key: Fingerprint,
        approve: bool,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewToken {
    #[serde(with = "text")]
    pub(crate) secret: Digest,
    pub(crate) names: NamePattern,
    pub(crate) role: Role,
    pub(crate) uses: u32,
    pub(crate) ttl: Millis,
    pub(crate) lifetime: Millis,
    pub(crate) approve: bool,
    pub(crate) again: bool,
}

/// A name or the fingerprint of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RevokeTarget {
    Client(#[serde(with = "text")] ClientId),
    Certificate(#[serde(with = "text")] Fingerprint),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RegistryAnswer {
    Tokens(Vec<TokenLine>),
    Clients(Vec<ClientLine>),
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
    /// The digest of its public key.
    pub(crate) key: Option<String>,
    #[serde(flatten)]
    pub(crate) record: ClientRecord,
}

/// How long an expired line is kept: it says which device used it.
const KEPT_FOR: Millis = 90 * 24 * 3_600_000;
/// Clients in one answer, at most.
pub(crate) const PAGE: usize = 1_000;

impl Registry {
    /// Answers an operator. Blocks: a change is durable.
    pub(crate) fn answer(&mut self, ask: &RegistryAsk, signer: &Signer, now: Millis) -> Result<RegistryAnswer, String> {
        let done = match ask {
            RegistryAsk::Tokens => return Ok(RegistryAnswer::Tokens(self.token_lines(now))),
            RegistryAsk::Clients { after } => {
                return Ok(RegistryAnswer::Clients(self.client_lines(after, signer, now)));
            }
            RegistryAsk::Open(new) => self.open_token(new, now),
            RegistryAsk::RevokeToken { id } => self.revoke_token(id, now),
            RegistryAsk::Revoke { what, why } => self.revoke(what, why, now),
            RegistryAsk::Restore { what } => self.restore(what),
            RegistryAsk::Tag { name, add, remove } => self.tag(name, add, remove),
            RegistryAsk::Forget { name } => self.forget(name, now),
            RegistryAsk::Approve { key, approve } => self.approve(key, *approve, signer, now),
        };
        done.map(RegistryAnswer::Done)
    }

    fn open_token(&mut self, new: &NewToken, now: Millis) -> Result<String, String> {
        if let NamePattern::One(name) = &new.names
            && new.uses > 1
        {
            return Err(format!(
                "one device has the name `{name}`: leave out `--uses`, or give a pattern such as `{name}-*`"
            ));
        }
        let id = Token::id(&new.secret);
        if self.tokens.contains_key(&id) {
            return Err(format!("another line has the number {id}; type the command again"));
        }
        let mut outdated = None;
        if let NamePattern::One(name) = &new.names
            && let Some(client) = self.clients.get(name)
            && !client.is_forgotten()
        {
            match (&client.revoked, new.again) {
                (Some(_), false) => {
                    return Err(format!(
                        "`{name}` is revoked; `--again` admits a device with a new key under this name, and none of the old \
                         certificates; `fl-server clients restore {name}` admits those again"
                    ));
                }
                (None, false) => {
                    return Err(format!(
                        "`{name}` is enrolled already; for a device that is lost or set up again, add `--again`: its certificate \
                         is refused once the new one is used"
                    ));
                }
                (Some(_), true) => outdated = Some(name),
                (None, true) => {}
            }
        }
        let gone = self.make_room(now);
        if self.tokens.len() >= MAX_TOKENS {
            return Err(format!(
                "{MAX_TOKENS} lines are open; revoke some (`fl-server tokens list` shows them), or let one line enroll many \
                 devices (`--uses`)"
            ));
        }
        // Whoever has a copy of the old key is out, also if the operator restores the name before the device has enrolled.
        if let Some(client) = outdated.and_then(|name| self.clients.get_mut(name)) {
            client.outdate(now);
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
            next: 0,
        };
        self.tokens.insert(id.clone(), token);
        let mut changed = vec![Entry::Token(&id)];
        for (id, token) in &gone {
            changed.push(Entry::Token(id));
            changed.extend((0..token.taken.len()).map(|at| Entry::Use(id, at)));
        }
        changed.extend(outdated.map(Entry::Client));
        self.save(&changed).map_err(stored)?;
        self.standings().lines(self.tokens.get(&id), gone.values());
        Ok(id)
    }

    /// Removes lines that expired long ago; and where there is no room for another one, those that are closed, the oldest first. A
    /// line that was used tells a second device by whom, as long as it is kept. Returns those that are gone.
    fn make_room(&mut self, now: Millis) -> BTreeMap<String, Token> {
        let old = self.tokens.extract_if(.., |_, token| {
            token.has_ended(now) && token.expires.saturating_add(KEPT_FOR) <= now
        });
        let mut gone: BTreeMap<_, _> = old.collect();
        let excess = (self.tokens.len() + 1).saturating_sub(MAX_TOKENS);
        if excess > 0 {
            let closed = self.tokens.iter();
            let closed = closed.filter(|(_, token)| !token.is_open(now, |one| self.is_done(one)));
            let mut closed: Vec<_> = closed.collect();
            closed.sort_by_key(|(_, token)| token.created);
            // A tenth at once, so that not every line sorts them all.
            let going = closed.into_iter().take(excess.max(MAX_TOKENS / 10));
            let going: Vec<_> = going.map(|(id, _)| id.clone()).collect();
            gone.extend(going.iter().filter_map(|id| self.tokens.remove_entry(id)));
        }
        gone
    }

    fn token_lines(&self, now: Millis) -> Vec<TokenLine> {
        let lines = self.tokens.iter().map(|(id, token)| TokenLine {
            id: id.clone(),
            names: token.names.to_string(),
            role: token.role,
            state: match token.closed(now) {
                None => "open",
                Some(TokenEnd::Used) => "used",
                Some(TokenEnd::Expired(_)) => "expired",
                Some(TokenEnd::Revoked(_)) => "revoked",
            }
            .to_owned(),
            uses: token.uses,
            used: token.taken.len() as u32,
            created_ms: token.created,
            expires_ms: token.expires,
            approve: token.approve,
        });
        let mut lines: Vec<_> = lines.collect();
        lines.sort_by_key(|line| std::cmp::Reverse(line.created_ms));
        lines
    }

    fn revoke_token(&mut self, id: &str, now: Millis) -> Result<String, String> {
        let token = self.tokens.get_mut(id);
        let token = token.ok_or_else(|| format!("there is no token `{id}`; `fl-server tokens list` shows them"))?;
        token.revoked.get_or_insert(now);
        self.save(&[Entry::Token(id)]).map_err(stored)?;
        Ok(format!("token {id} is revoked; clients that it enrolled stay enrolled"))
    }

    fn client_lines(&self, after: &str, signer: &Signer, now: Millis) -> Vec<ClientLine> {
        let held = self
            .waiting(now)
            .filter(|one| after.is_empty() && one.stage == Stage::Held)
            .map(|one| ClientLine {
                name: one.name.to_string(),
                state: "waits for approval".to_owned(),
                words: self.words(&one.key, signer).ok(),
                key: Some(one.key.to_string()),
                record: ClientRecord {
                    address: Some(one.address),
                    ..ClientRecord::default()
                },
            });
        let begin = self.clients.iter().filter(|(_, client)| !client.is_forgotten());
        let page = begin
            .skip_while(|(name, _)| !after.is_empty() && name.as_str() <= after)
            .take(PAGE);
        let known = page.map(|(name, client)| {
            let newest = client.certificates.iter().map(|one| one.expires).max();
            let state = match &**client {
                ClientRecord { revoked: Some(_), .. } => "revoked",
                _ if newest.is_some_and(|expires| expires <= now) => "expired",
                ClientRecord { last_seen: None, .. } => "new",
                _ => "active",
            };
            // Certificates are not secret, but nobody reads them here.
            let mut record = ClientRecord::clone(client);
            record.certificates.iter_mut().for_each(|one| one.pem = None);
            ClientLine {
                name: name.to_string(),
                state: state.to_owned(),
                words: None,
                key: None,
                record,
            }
        });
        held.chain(known).collect()
    }

    fn revoke(&mut self, what: &RevokeTarget, why: &str, now: Millis) -> Result<String, String> {
        let why = why.chars().filter(|c| !c.is_control()).take(200).collect();
        let revocation = Some(Box::new(Exclusion { at: now, why }));
        match what {
            RevokeTarget::Client(name) => {
                // Also a client that is not known yet, whose certificate `fl-server issue` made.
                let client = self.clients.entry(name.clone()).or_default();
                client.revoked = revocation;
                client.ended = Some(now);
                self.save(&[Entry::Client(name)]).map_err(stored)?;
                Ok(format!("`{name}` is revoked; its connections end within a second"))
            }
            RevokeTarget::Certificate(fingerprint) => {
                let (name, certificate) = self.certificate(fingerprint)?;
                certificate.revoked = revocation;
                self.save(&[Entry::Client(&name)]).map_err(stored)?;
                Ok(format!(
                    "certificate {fingerprint} of `{name}` is revoked; other certificates of `{name}` stay valid"
                ))
            }
        }
    }

    fn restore(&mut self, what: &RevokeTarget) -> Result<String, String> {
        match what {
            RevokeTarget::Client(name) => {
                let client = self.known(name.as_str())?.1;
                if client.revoked.take().is_none() {
                    return Err(format!("`{name}` is not revoked"));
                }
                self.save(&[Entry::Client(name)]).map_err(stored)?;
                Ok(format!(
                    "`{name}` is admitted again with the certificate that it had; if somebody else may have its key, revoke it, and \
                     enroll the device with `fl-server enroll {name} --again`"
                ))
            }
            RevokeTarget::Certificate(fingerprint) => {
                let (name, certificate) = self.certificate(fingerprint)?;
                if certificate.revoked.take().is_none() {
                    return Err(format!("certificate {fingerprint} is not revoked"));
                }
                self.save(&[Entry::Client(&name)]).map_err(stored)?;
                Ok(format!("certificate {fingerprint} of `{name}` is valid again"))
            }
        }
    }

    fn tag(&mut self, name: &str, add: &[String], remove: &[String]) -> Result<String, String> {
        if let Some(bad) = add.iter().find(|tag| !is_tag(tag)) {
            return Err(format!(
                "tag `{bad}` must be 1 to {MAX_TAG} letters, digits, `-`, `_`, `.`, `:`, `/` or `=`"
            ));
        }
        let (name, client) = self.known(name)?;
        let mut tags = client.tags.clone();
        tags.retain(|tag| !remove.contains(tag));
        tags.extend(add.iter().cloned());
        if tags.len() > MAX_TAGS {
            return Err(format!("a client has at most {MAX_TAGS} tags"));
        }
        client.tags = tags.clone();
        self.save(&[Entry::Client(&name)]).map_err(stored)?;
        let tags: Vec<_> = tags.into_iter().collect();
        Ok(match tags.as_slice() {
            [] => format!("`{name}` has no tags"),
            tags => format!("`{name}` has the tags {}", tags.join(", ")),
        })
    }

    fn forget(&mut self, name: &str, now: Millis) -> Result<String, String> {
        let (name, client) = self.known(name)?;
        *client = std::mem::take(client).forgotten(now);
        self.save(&[Entry::Client(&name)]).map_err(stored)?;
        Ok(format!(
            "`{name}` is forgotten: its certificates do not count any more, its connections end within a second, and its name is free"
        ))
    }

    fn approve(&mut self, key: &Fingerprint, approve: bool, signer: &Signer, now: Millis) -> Result<String, String> {
        for (id, token) in self.tokens.iter_mut().filter(|(_, token)| !token.has_ended(now)) {
            let mut uses = token.taken.iter_mut().enumerate();
            let Some((at, one)) = uses.find(|(_, one)| one.key == *key && one.stage == Stage::Held) else {
                continue;
            };
            one.stage = if approve { Stage::Approved } else { Stage::Denied };
            let name = one.name.clone();
            let id = id.clone();
            self.save(&[Entry::Use(&id, at)]).map_err(stored)?;
            let words = self.words(key, signer).unwrap_or_default();
            let done = if approve { "approved" } else { "denied" };
            return Ok(format!("`{name}` is {done}: {words}"));
        }
        Err("no device with this key waits; `fl-server clients list` shows those that do".to_owned())
    }

    fn known(&mut self, name: &str) -> Result<(ClientId, &mut ClientRecord), String> {
        if let Ok(name) = name.parse::<ClientId>()
            && let Some(client) = self.clients.get_mut(&name).filter(|client| !client.is_forgotten())
        {
            return Ok((name, client));
        }
        Err(format!(
            "there is no client `{name}`; `fl-server clients list` shows them"
        ))
    }

    fn certificate(&mut self, fingerprint: &Fingerprint) -> Result<(ClientId, &mut CertificateRecord), String> {
        for (name, client) in &mut self.clients {
            let mut all = client.certificates.iter_mut();
            if let Some(certificate) = all.find(|one| one.fingerprint == *fingerprint) {
                return Ok((name.clone(), certificate));
            }
        }
        Err(format!(
            "no client has certificate {fingerprint}; to revoke one that the registry does not know, add a line to the file `revoked`"
        ))
    }
}

fn is_tag(text: &str) -> bool {
    let mut chars = text.chars();
    !text.is_empty() && text.len() <= MAX_TAG && chars.all(|c| c.is_ascii_alphanumeric() || "-_.:/=".contains(c))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn stored(error: StoreError) -> String {
    format!("the registry cannot be stored: {error}")
}
