"""The service: searches over HTTP, for programs and for the page. A request meets, in this order:

`http_server` the socket and the process; `app` puts the rest together, with login and metrics
`guard`       checks Host, Origin, token and size, by `hosts` and `tokens`; `metrics` counts
`pages`       the page and its files; `api` the JSON routes, documented by `models`
`errors`      how every error is answered
`service`     owns the problems and the searches; opens saved runs
`problems`    a model that all searches share; `forms` rows, rules and locks as JSON
`search_session` one person's search, part after part; `events` what its followers see
`concurrency` keeps many searches from holding up requests
"""
