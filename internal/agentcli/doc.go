// Package agentcli keeps the agent CLIs that run in boxes: which npm packages each
// is made of, to the bit, and where they lie once they were fetched.
//
// cmd/holdfast, app and testkit import it. Layout: <dir>/<name>/<version>-<sum>/…,
// and <dir>/<name>/current names the one that new starts take. Invariant: a tree
// that can be found is complete and is what the pins of the release that installed
// it say; it never changes, so a box that runs from it is not disturbed by a newer
// one.
package agentcli
