// Package runtimetest is the contract of runtime.Runtime as a test suite, and
// the Host it runs on: a log in memory and a box of the mem driver.
//
// Tests of runtimes import it. Invariant: the Host keeps to the engine's rules
// (a record is all or nothing, a crashed server records nothing more, a box
// outlives its server), so what passes here may be trusted with the real one.
package runtimetest
