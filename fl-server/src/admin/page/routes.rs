//! The response to each path, and the headers that restrict what a browser may load with it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Form, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::get;
use axum::{Extension, Router};
use serde::Deserialize;
use tokio_stream::wrappers::ReceiverStream;

use super::access::{CallerCertificate, Evidence, reading};
use super::auth_guard::Entry;
use super::connection_limit::Place;
use super::metrics::{self, Inputs, Process};
use super::snapshot::Dashboard;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Content type of Prometheus' own text format.
const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Bytes of a request's body, at most: a token.
const MAX_BODY: usize = 4096;
/// Timeout from the head of a request to the head of its response.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
const PENALTY: Duration = Duration::from_secs(1);
const LOGIN: &str = "/login";

pub(super) fn router(app: Arc<Dashboard>) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/report.json", get(report))
        .route("/live.json", get(live))
        .route("/live", get(stream))
        .route("/metrics", get(prometheus))
        .route(LOGIN, get(form).post(login))
        .fallback(|| async { plain(StatusCode::NOT_FOUND, "there is nothing here; the page is at /") })
        .layer(axum::extract::DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), guard))
        .with_state(app)
}

/// Checks access, and sets the security headers.
async fn guard(State(app): State<Arc<Dashboard>>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let evidence = Evidence {
        shown: request
            .extensions()
            .get::<CallerCertificate>()
            .cloned()
            .unwrap_or_default(),
        headers: request.headers().clone(),
    };
    if let Some(operator) = app.access.operator(&evidence.shown)
        && let Some(ConnectInfo(address)) = request.extensions().get::<ConnectInfo<SocketAddr>>()
    {
        app.sources
            .service
            .registry
            .joined(reading(operator, address.ip()))
            .await;
    }
    let entry = app.access.entry(&evidence);
    if entry == Entry::Login && evidence.headers.contains_key(header::AUTHORIZATION) {
        app.wrong_token().await;
    }
    request.extensions_mut().insert(evidence);
    if let (Entry::Allowed, Some(place)) = (entry, request.extensions().get::<Place>()) {
        place.let_in();
    }
    let mut answer = match entry {
        Entry::Allowed => in_time(request, next).await,
        Entry::Login if path == LOGIN => in_time(request, next).await,
        Entry::Login if path == "/" => Redirect::to(LOGIN).into_response(),
        Entry::Login => plain(
            StatusCode::UNAUTHORIZED,
            "show the token (`Authorization: Bearer TOKEN`) or an operator's certificate, or log in at /login",
        ),
        Entry::Foreign => plain(
            StatusCode::MISDIRECTED_REQUEST,
            "ask for this page by the name of this machine itself: localhost or 127.0.0.1",
        ),
    };
    let headers = answer.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// Applies the timeout to the response's head, not its body.
async fn in_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(ANSWER_WITHIN, next.run(request)).await {
        Ok(answer) => answer,
        Err(_) => plain(StatusCode::REQUEST_TIMEOUT, "this took too long"),
    }
}

async fn page(State(app): State<Arc<Dashboard>>) -> Response {
    Html(fl_report::live_page(app.sources.service.plan.name.as_str(), &app.nonce)).into_response()
}

async fn report(State(app): State<Arc<Dashboard>>) -> Response {
    match app.report().await {
        Ok(text) => json(text),
        Err(why) => plain(StatusCode::INTERNAL_SERVER_ERROR, &why),
    }
}

async fn live(State(app): State<Arc<Dashboard>>) -> Response {
    match serde_json::to_string(&app.view().await) {
        Ok(text) => json(text.into()),
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// Streams changes as server-sent events: at most one live event a second, and one event for each new report.
///
/// A stream ends within a second once what its request showed does not count any more.
async fn stream(State(app): State<Arc<Dashboard>>, Extension(evidence): Extension<Evidence>) -> Response {
    let Ok(place) = Arc::clone(&app.streams).try_acquire_owned() else {
        let why = "as many pages as this server shows at once are open; close one, or read /live.json";
        return plain(StatusCode::SERVICE_UNAVAILABLE, why);
    };
    let (events, stream) = tokio::sync::mpsc::channel::<Result<Event, Infallible>>(2);
    let access = app.access.clone();
    let mut ticks = app.ticks.clone();
    tokio::spawn(async move {
        let _place = place;
        // A new viewer does not wait for the next tick.
        let first = serde_json::to_string(&app.view().await).unwrap_or_default();
        drop(app);
        let mut event = Event::default().event("live").data(first);
        let mut told = None;
        // Until the viewer is gone.
        while events.send(Ok(event)).await.is_ok() {
            if ticks.changed().await.is_err() || access.entry(&evidence) != Entry::Allowed {
                return;
            }
            let tick = ticks.borrow_and_update().clone();
            event = Event::default().event("live").data(&*tick.live);
            if told.replace(tick.mark) != Some(tick.mark) {
                let data = format!("{{\"version\":{}}}", tick.mark.version);
                let report = Event::default().event("report").data(data);
                if events.send(Ok(report)).await.is_err() {
                    return;
                }
            }
        }
    });
    let stream = ReceiverStream::new(stream);
    Sse::new(stream).keep_alive(KeepAlive::default()).into_response()
}

/// OpenMetrics for whoever asks for it, or for nothing; the classic text for others, such as `promtool` and people.
async fn prometheus(State(app): State<Arc<Dashboard>>, headers: HeaderMap) -> Response {
    let (view, moment) = app.view_and_moment().await;
    let Some(moment) = moment else {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping");
    };
    let measured = Inputs {
        view: &view,
        known: &moment.known,
        version: moment.state.version(),
        clients: &moment.clients,
        open: moment.pending.total(),
        edge: &app.sources.service.edge,
        process: Process::now(app.since),
    };
    match metrics::text(&measured) {
        Ok(text) => {
            let asked = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
            if asked.is_none_or(|accept| accept.contains("application/openmetrics-text")) {
                ([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response()
            } else {
                ([(header::CONTENT_TYPE, CLASSIC)], metrics::classic(&text)).into_response()
            }
        }
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

async fn form() -> Response {
    login_page(StatusCode::OK, "")
}

#[derive(Debug, Deserialize)]
struct LoginForm {
    token: String,
}

async fn login(State(app): State<Arc<Dashboard>>, Form(LoginForm { token }): Form<LoginForm>) -> Response {
    let guard = app.access.guard();
    if let Some(cookie) = guard.cookie().filter(|_| guard.is_token(&token)) {
        return ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response();
    }
    app.wrong_token().await;
    login_page(StatusCode::UNAUTHORIZED, "That is not the token.")
}

impl Dashboard {
    /// A wrong token was shown. Those queue behind each other; the right one does not wait for them.
    async fn wrong_token(&self) {
        tracing::warn!("a wrong token was shown at the admin address");
        let _turn = self.logins.acquire().await;
        tokio::time::sleep(PENALTY).await;
    }
}

fn login_page(status: StatusCode, note: &str) -> Response {
    let page = include_str!("login.html").replace("<!--NOTE-->", note);
    (status, Html(page)).into_response()
}

fn json(text: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], Body::from(text)).into_response()
}

fn plain(status: StatusCode, text: &str) -> Response {
    (status, format!("{text}\n")).into_response()
}
