// Package faultloop lets a real server fail in every way that a machine knows, under
// load: killed, stopped, its disk full, its power cut. An oracle of its own then checks
// what clients were promised.
//
// cmd/holdfast and tests use it. It imports the client and the vocabulary, and runs the
// holdfast binary it is given on a disk image of its own. Invariant: it acts by signals,
// the disk and the public API only, and it judges by what a client was told and sees.
package faultloop
