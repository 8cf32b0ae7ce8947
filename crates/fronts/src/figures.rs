//! The figures of a served drive, over HTTP while it runs.
//!
//! Guarantees: whatever becomes of those who ask, the drive is served on. Fails when
//! the address cannot be listened on, or the system gives no thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{Builder, Scope};

use drive::error::Error;
use drive::say::say;
use load::threads::no_thread;
use metrics::{Endpoint, Facts, Page, Paper, Reach, Stopper};

use crate::args::ServeArgs;

/// Where figures are to be had.
pub(crate) struct Figures {
    endpoint: Endpoint,
    stopper: Stopper,
    /// The address of the page.
    pub url: String,
}

impl Figures {
    /// Listens where that was asked for.
    pub fn bind(args: &ServeArgs) -> Result<Option<Figures>, Error> {
        let Some(address) = &args.metrics else { return Ok(None) };
        let (endpoint, stopper) = Endpoint::bind(address)?;
        let at = endpoint.addr().map_err(|e| Error::system("serve metrics", &e))?;
        Ok(Some(Figures { endpoint, stopper, url: format!("http://{at}/metrics") }))
    }

    /// Gives them until what comes back is dropped.
    pub fn serve<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        reach: impl Reach + Send + 'scope,
        facts: Facts,
    ) -> Result<Stopper, Error> {
        let Figures { endpoint, stopper, .. } = self;
        let mut page = Page::new(reach, facts);
        let serve = move || {
            let give = |paper| match paper {
                Paper::Metrics => page.text().map(str::to_string),
                Paper::Explained => page.explained().map(str::to_string),
            };
            let serve = AssertUnwindSafe(|| endpoint.run(give));
            if catch_unwind(serve).is_err() {
                say("there are no metrics any more, by a fault of the program: report it");
            }
        };
        Builder::new()
            .name("metrics".into())
            .spawn_scoped(scope, serve)
            .map_err(|e| no_thread(&e))?;
        Ok(stopper)
    }
}
