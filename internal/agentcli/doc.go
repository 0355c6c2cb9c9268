// Package agentcli manages the agent CLIs that run in boxes: which npm packages, with exact
// content, each CLI consists of, and where the CLIs are installed.
//
// cmd/holdfast, app and testkit import it. Layout: <dir>/<name>/<version>-<sum>/…, and
// <dir>/<name>/current links to the tree that new starts use. Invariant: a tree that can be found
// is complete and has exactly the content that the pins of the installing release specify; it
// never changes, so a box that runs from it is not disturbed by a newer tree.
package agentcli
