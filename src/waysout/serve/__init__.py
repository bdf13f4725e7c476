"""The service: searches over HTTP, for programs and for the page. A request meets, in this order:

`http_server` the socket and the process; `app` puts the rest together, with login and metrics
`guard`       checks Host, Origin, token and size, by `hosts` and `tokens`; `metrics` counts
`pages`       the page and its files; `api` the JSON routes, documented by `models`
`api_page`    the same routes for people to read
`errors`      how every error is answered
`service`     owns the problems and the searches; `saved_run` opens runs on file
`problems`    a model that all searches share; `people` looks its rows up
`strips`      what each lever does alone from any row on
`forms`       rows, rules and locks as JSON; `option_forms` options and ways
`search_session` one person's search, part after part, within `limits`; `events` what its
              followers see; `settling` makes exact what it shows; `pins` what the person keeps
`concurrency` keeps many searches from holding up requests
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from waysout.lazy import on_first_use

if TYPE_CHECKING:
    from waysout.serve.app import create_app as create_app
    from waysout.serve.hosts import Hosts as Hosts
    from waysout.serve.limits import ServiceLimits as ServiceLimits
    from waysout.serve.problems import ServedProblem as ServedProblem
    from waysout.serve.service import Service as Service
    from waysout.serve.tokens import Gate as Gate

__getattr__, __dir__, __all__ = on_first_use(
    __name__,
    {
        "app": "create_app",
        "hosts": "Hosts",
        "problems": "ServedProblem",
        "limits": "ServiceLimits",
        "service": "Service",
        "tokens": "Gate",
    },
    extra="serve",
)
