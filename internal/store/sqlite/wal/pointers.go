package wal

import "unsafe"

// This SQLite is C code that was translated to Go. Its pointers, also those to functions, are numbers (uintptr).

// at returns a pointer to the value that is stored at an address.
func at[T any](p uintptr) *T { return *(**T)(unsafe.Pointer(&p)) }

// bytesAt returns the n bytes at an address.
func bytesAt(p uintptr, n int32) []byte { return unsafe.Slice(at[byte](p), n) }

// address returns the address of a value that the caller keeps referenced while C uses it.
func address[T any](v *T) uintptr { return uintptr(unsafe.Pointer(v)) }

// function returns the function, of type F, that a C pointer stands for.
func function[F any](p uintptr) F { return *(*F)(unsafe.Pointer(&p)) }

// pointer returns the C pointer of a function, which must be declared, not a literal that captures variables.
func pointer[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&f)) }
