// Package faultloop makes a real server fail under load in the ways that a machine can
// fail: killed, stopped, with a full disk, with its power cut. An oracle of its own
// then checks the promises made to clients.
//
// cmd/holdfast and tests use it. It imports the client and the vocabulary, and runs the
// given holdfast binary on a disk image of its own. Invariant: it acts only by signals,
// the disk and the public API, and it judges only by the answers that clients get.
package faultloop
