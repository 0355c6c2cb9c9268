package db

import (
	"context"
	"database/sql"
	"errors"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/holdfast-run/holdfast"
)

// refused reports whether err is a *holdfast.Error: the refusal of one Op, not a failure of the
// database.
func refused(err error) bool {
	var e *holdfast.Error
	return errors.As(err, &e)
}

// code returns SQLite's primary error code of err, or 0 if err is not from SQLite.
func code(err error) int { return extended(err) & 0xff }

// extended returns SQLite's extended error code of err, or 0 if err is not from SQLite.
func extended(err error) int {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return 0
	}
	return e.Code()
}

// lost reports whether err means that written data may be missing; then no further write is
// allowed. After a failed fsync the kernel may have dropped the pages, so that a second try
// could succeed and still lose them. Errors while reading do not mean that.
func lost(err error) bool {
	switch code(err) {
	case lib.SQLITE_IOERR:
		return !Unreadable(err)
	case lib.SQLITE_NOTADB, lib.SQLITE_READONLY, lib.SQLITE_CANTOPEN, lib.SQLITE_PROTOCOL:
		return true
	}
	return errors.Is(err, errFault)
}

// Unreadable reports whether err means that data in the database file cannot be read.
func Unreadable(err error) bool {
	switch extended(err) {
	case lib.SQLITE_IOERR_READ, lib.SQLITE_IOERR_SHORT_READ, lib.SQLITE_IOERR_CORRUPTFS, lib.SQLITE_IOERR_DATA:
		return true
	}
	return code(err) == lib.SQLITE_CORRUPT
}

// errFault is the error of failures that tests inject at a commit.
var errFault = errors.New("injected fault")

// readOnly returns the error of all further writes to the database at path, after err, which may
// have lost data.
func readOnly(path string, err error) *holdfast.Error {
	return holdfast.Errorf(holdfast.KindUnavailable, "store.commit", "the disk of %s failed, and the database is read-only: %w", path, err).
		WithHint("check the disk (dmesg, smartctl), then start the server again")
}

// Failure turns an error of the database into the error that a caller gets. A
// *holdfast.Error is returned as it is.
func Failure(op string, err error) error {
	var e *holdfast.Error
	switch {
	case errors.As(err, &e):
		return err
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		code(err) == lib.SQLITE_INTERRUPT:
		return holdfast.Errorf(holdfast.KindUnavailable, op, "gave up waiting for the database: %w", err)
	case code(err) == lib.SQLITE_BUSY || code(err) == lib.SQLITE_LOCKED:
		return holdfast.Errorf(holdfast.KindUnavailable, op, "the database is locked by another program: %w", err).
			WithHint("close programs that have holdfast.db open for writing, then try again")
	case code(err) == lib.SQLITE_TOOBIG:
		return holdfast.Errorf(holdfast.KindTooLarge, op, "the change is too large for one row of the database: %w", err)
	case code(err) == lib.SQLITE_FULL:
		return holdfast.Errorf(holdfast.KindUnavailable, op, "the disk is full, so the database cannot be written: %w", err).
			WithHint("free space on the disk: the server then writes again by itself")
	case Unreadable(err):
		return holdfast.Errorf(holdfast.KindUnavailable, op, "a page of the database is damaged: %w", err).
			WithHint("holdfast doctor --verify lists all damage; put the data directory back from a backup")
	case lost(err):
		return holdfast.Errorf(holdfast.KindUnavailable, op, "the database cannot be read: %w", err).
			WithHint("check the disk (dmesg, smartctl)")
	}
	return holdfast.Errorf(holdfast.KindInternal, op, "the operation on the database failed: %w", err)
}

// Gone reports whether err, from reading a database, means that the file itself is damaged or
// cannot be opened.
func Gone(err error) bool { return Unreadable(err) || lost(err) }

// Found reports whether a query of one row, which returned err, found its row. It returns false
// without an error for sql.ErrNoRows, and any other error as it is.
func Found(err error) (bool, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// RowError turns err, the result of a query for one row, into the error of an operation: the result of missing if the
// query found no row, nil if err is nil, and otherwise a Failure of op.
func RowError(op string, err error, missing func() error) error {
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return missing()
	case err != nil:
		return Failure(op, err)
	}
	return nil
}
