// Package spec describes the API: it completes the OpenAPI document that the routes of
// httpapi make, and renders it as a page.
//
// It owns the document's tags, examples, strictness of requests, lists of values and
// headers. Only httpapi may import it; it imports the vocabulary and the package problem.
// Invariant: the document is made of the registered routes and of the wire types alone, so
// that it describes what the server does; examples are values of those types.
package spec
