package sqlite

import (
	"context"
	"errors"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/holdfast-run/holdfast"
)

// refused reports whether err is an answer to the caller, as against a failure
// of the database.
func refused(err error) bool {
	var e *holdfast.Error
	return errors.As(err, &e)
}

func code(err error) int {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return 0
	}
	return e.Code() & 0xff
}

// fatal reports whether nothing more may be written after err: the disk is full,
// or what was written may not be there. After a failed fsync the kernel may have
// dropped the pages, so trying again could succeed and still lose them.
func fatal(err error) bool {
	switch code(err) {
	case lib.SQLITE_FULL, lib.SQLITE_IOERR, lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB,
		lib.SQLITE_READONLY, lib.SQLITE_CANTOPEN, lib.SQLITE_PROTOCOL:
		return true
	}
	return errors.Is(err, errFault)
}

// errFault marks failures that tests inject at the commit.
var errFault = errors.New("injected fault")

func readOnly(err error) *holdfast.Error {
	e := holdfast.Errorf(holdfast.KindUnavailable, "store.commit", "the store is read-only: %w", err)
	if code(err) == lib.SQLITE_FULL {
		return e.WithHint("free space on the disk, then restart the server")
	}
	return e.WithHint("check the disk (dmesg, smartctl), then restart the server")
}

// failure is a database error as the caller sees it.
func failure(op string, err error) error {
	var e *holdfast.Error
	switch {
	case errors.As(err, &e):
		return err
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		code(err) == lib.SQLITE_INTERRUPT:
		return holdfast.Errorf(holdfast.KindUnavailable, op, "gave up waiting: %w", err)
	case code(err) == lib.SQLITE_BUSY || code(err) == lib.SQLITE_LOCKED:
		return holdfast.Errorf(holdfast.KindUnavailable, op, "the database is locked by another program: %w", err).
			WithHint("close programs that have holdfast.db open for writing, then try again")
	case code(err) == lib.SQLITE_TOOBIG:
		return holdfast.Errorf(holdfast.KindTooLarge, op, "the change is too large for one row: %w", err)
	case fatal(err):
		return holdfast.Errorf(holdfast.KindUnavailable, op, "the database cannot be read: %w", err).
			WithHint("check the disk (dmesg, smartctl)")
	}
	return holdfast.Errorf(holdfast.KindInternal, op, "%w", err)
}
