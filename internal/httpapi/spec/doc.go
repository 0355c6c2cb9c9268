// Package spec describes the API: it completes the OpenAPI document that huma makes of the routes
// of httpapi, and renders it as an HTML page.
//
// It owns the document's tags, examples, lists of values and headers, and the rule that requests
// have no unknown fields. Only httpapi may import it; it imports the vocabulary, policy and the
// package problem. Invariant: the document is made only from the registered routes and the wire types, so
// that it describes what the server does; examples are values of those types.
package spec
