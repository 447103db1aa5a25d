//! Requests: authentication, paths, parameters and bodies; one function per verb.
//!
//! `route` reads paths, `query` parameters, `response_form` the form of the answer, `body` what is
//! sent; `read` lists and gets, `page` cuts lists, `write` creates, updates, patches and deletes, `apply` applies, `watch` streams; `pods/` forwards to
//! nodes.

mod apply;
mod body;
mod page;
mod pods;
mod query;
mod read;
mod response_form;
mod route;
mod watch;
mod write;

use std::{net::IpAddr, sync::Arc};

use hyper::{
    Method, Request, Response,
    header::{ACCEPT, CONTENT_TYPE},
    http::HeaderMap,
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub(crate) use self::{
    body::{Sent, sent},
    query::Query,
    route::is_open,
};
use self::{
    response_form::Form,
    route::{Route, Subresource, Target},
};
use crate::{
    auth::Auth,
    discovery,
    faults::{self, Client, Faults},
    openapi,
    respond::{self, Body},
    status::Status,
    store::Store,
};

/// One API server replica.
#[derive(Clone)]
pub(crate) struct Api {
    store: Store,
    auth: Arc<Auth>,
    faults: Faults,
    /// Watches end with their replica.
    shutdown: CancellationToken,
    /// A permit for each write, which bounds the bodies in memory.
    writes: Arc<Semaphore>,
    /// A permit for each program that a client runs in a pod.
    sessions: Arc<Semaphore>,
    /// Ends tasks that outlive their connection, however the replica ends.
    ended: CancellationToken,
}

/// A request for objects.
struct ObjectRequest {
    target: Target,
    query: Query,
    form: Form,
    headers: HeaderMap,
    client: Client,
}

impl Api {
    /// `ended` must be cancelled at the latest when the replica's task is dropped.
    pub(crate) fn new(
        store: Store,
        auth: Arc<Auth>,
        faults: Faults,
        shutdown: CancellationToken,
        ended: CancellationToken,
    ) -> Self {
        let writes = Arc::new(Semaphore::new(store.config().writes));
        let sessions = Arc::new(Semaphore::new(store.config().sessions));
        Self {
            store,
            auth,
            faults,
            shutdown,
            writes,
            sessions,
            ended,
        }
    }

    /// Answers a request. Errors become a Status.
    pub(crate) async fn answer(&self, request: Request<Sent>, source: IpAddr) -> Response<Body> {
        let user = match self.auth.user(request.headers()) {
            Ok(user) => user.map(str::to_owned),
            Err(status) => return respond::failure(&status),
        };
        let client = Client {
            users: user.into_iter().collect(),
            source,
        };
        let response = match self.handle(request, &client).await {
            Ok(response) => response,
            Err(status) => respond::failure(&status),
        };
        faults::apply_to_body(&self.faults, &client, response)
    }

    async fn handle(&self, request: Request<Sent>, client: &Client) -> Result<Response<Body>, Status> {
        let path = request.uri().path();
        let route = route::parse(path);
        let open = route::is_open(path);
        if client.users.is_empty() && !open {
            return Err(Status::anonymous(
                request.method().as_str().to_lowercase().as_str(),
                path,
            ));
        }
        if !open {
            self.faults.refuse(client)?;
        }
        let Some(route) = route else {
            return Err(Status::no_such_path());
        };
        let target = match route {
            Route::Objects(target) => target,
            Route::Pod(pod) => return self.pod_request(&pod, request).await,
            _ if request.method() != Method::GET => return Err(Status::method_not_allowed()),
            Route::Health => return Ok(respond::text("ok")),
            Route::Version => return Ok(respond::json(200, &discovery::version())),
            Route::Discovery(what) => {
                let aggregated = response_form::wants_aggregated(request.headers());
                return Ok(discovery::answer(&what, aggregated));
            }
            Route::OpenApi(group) => return openapi::answer(group.as_deref()),
        };
        let (head, sent) = request.into_parts();
        let query = Query::parse(head.uri.query().unwrap_or_default());
        let form = response_form::form(head.headers.get(ACCEPT))?;
        let request = ObjectRequest {
            target,
            query,
            form,
            headers: head.headers,
            client: client.clone(),
        };
        self.about_objects(&request, &head.method, sent).await
    }

    async fn about_objects(
        &self,
        request: &ObjectRequest,
        method: &Method,
        sent: Sent,
    ) -> Result<Response<Body>, Status> {
        let named = request.target.name.is_some();
        let binding = request.target.subresource == Some(Subresource::Binding);
        match (method, named) {
            (&Method::POST, true) if binding => {}
            _ if binding => return Err(Status::method_not_allowed()),
            (&Method::GET, _) if request.query.watch() && request.target.subresource.is_none() => {
                return self.watch(request);
            }
            (&Method::GET, true) => return self.get(request),
            (&Method::GET, false) => return self.list(request).await,
            (&Method::POST, false) | (&Method::PUT | &Method::PATCH, true) => {}
            (&Method::DELETE, _) if request.target.subresource.is_none() => {}
            _ => return Err(Status::method_not_allowed()),
        }
        let _permit = self
            .writes
            .try_acquire()
            .map_err(|_| Status::too_many_requests())?;
        let sent = body::read(sent, self.store.config().body_bytes).await?;
        match *method {
            Method::POST if binding => self.bind(request, &sent),
            Method::POST => self.create(request, &sent),
            Method::PUT => self.replace(request, &sent),
            Method::PATCH => self.patch(request, &sent),
            _ if named => self.delete(request, &sent),
            _ => self.delete_collection(request, &sent),
        }
    }
}

impl ObjectRequest {
    /// The media type of the body, without parameters.
    fn content_type(&self) -> &str {
        let value = self
            .headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        value.split(';').next().unwrap_or_default().trim()
    }
}
