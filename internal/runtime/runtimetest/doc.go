// Package runtimetest tests the contract of runtime.Runtime as a suite. It also has a Host for
// these tests, with a log in memory and, by default, a box of the mem driver.
//
// Tests of runtimes import it. Invariant: the Host follows the engine's rules (a record is all
// or nothing, a crashed server records nothing more, a box outlives its server), so a runtime
// that passes here works with the engine.
package runtimetest
