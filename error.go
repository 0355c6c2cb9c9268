package holdfast

import (
	"errors"
	"fmt"
	"strings"
)

// Kind says what class of failure an Error is. The set of kinds is append-only (I-4);
// the map kinds gives each of them its HTTP status and its CLI exit code.
type Kind string

// The kinds of errors.
const (
	KindInvalid         Kind = "invalid"
	KindUnauthenticated Kind = "unauthenticated"
	KindDenied          Kind = "denied"
	KindNotFound        Kind = "not_found"
	KindConflict        Kind = "conflict"
	KindGone            Kind = "gone"
	KindTooLarge        Kind = "too_large"
	KindBusy            Kind = "busy"
	KindInternal        Kind = "internal"
	KindUnavailable     Kind = "unavailable"
)

var kinds = map[Kind]struct {
	status, exit int
	title        string
}{
	KindInvalid:         {400, 2, "Bad Request"},
	KindUnauthenticated: {401, 5, "Unauthorized"},
	KindDenied:          {403, 5, "Forbidden"},
	KindNotFound:        {404, 3, "Not Found"},
	KindConflict:        {409, 4, "Conflict"},
	KindGone:            {410, 4, "Gone"},
	KindTooLarge:        {413, 1, "Request Entity Too Large"},
	KindBusy:            {429, 4, "Too Many Requests"},
	KindInternal:        {500, 1, "Internal Server Error"},
	KindUnavailable:     {503, 6, "Service Unavailable"},
}

// HTTPStatus returns the HTTP status for errors of a kind; 500 for an unknown kind.
func (k Kind) HTTPStatus() int {
	if v, ok := kinds[k]; ok {
		return v.status
	}
	return 500
}

// ExitCode returns the CLI's exit code for errors of a kind; 1 for an unknown kind.
func (k Kind) ExitCode() int {
	if v, ok := kinds[k]; ok {
		return v.exit
	}
	return 1
}

// Problem returns the error document of err, which has kind k, for the HTTP API and
// for the command line. The title is HTTP's standard text for the status.
func (k Kind) Problem(err error) Problem {
	title := kinds[k].title
	if title == "" {
		title = kinds[KindInternal].title
	}
	typ := string(k)
	if errors.Is(err, ErrFull) {
		typ = "full"
	}
	return Problem{
		Type: problemURN + typ, Title: title, Status: k.HTTPStatus(),
		Detail: err.Error(), Kind: k, Hint: HintOf(err),
	}
}

const problemURN = "urn:holdfast:problem:"

// ErrFull is in the chain of the error that a server returns when as many boxes run as it
// allows. Nothing was recorded and the session is unharmed: the request can be repeated later.
var ErrFull = errors.New("the server already runs as many boxes as it may")

// Full reports whether the problem was made from an error with ErrFull in its chain.
func (p Problem) Full() bool { return p.Type == problemURN+"full" }

// Error is the error type of the public packages and between packages. A package that returns another type documents it.
type Error struct {
	// Op names the failed operation, such as "session.pause".
	Op string
	// Kind determines the HTTP status and the CLI's exit code.
	Kind Kind
	// Msg says what failed, lower case, quoting the offending value.
	Msg string
	// Hint is a command or setting that helps; may be empty.
	Hint string
	// Err is the cause; may be nil.
	Err error
}

// Errorf returns an Error of the given kind. The argument of %w in the format becomes the cause.
func Errorf(kind Kind, op, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Op: op, Kind: kind, Msg: err.Error(), Err: errors.Unwrap(err)}
}

// WithHint returns a copy of the error with the given hint.
func (e *Error) WithHint(format string, args ...any) *Error {
	c := *e
	c.Hint = fmt.Sprintf(format, args...)
	return &c
}

// Error returns "Op: Msg", or Msg alone if Op is empty. For an empty Msg it takes the text of Err, else the kind.
func (e *Error) Error() string {
	msg := e.Msg
	if msg == "" && e.Err != nil {
		msg = e.Err.Error()
	}
	if msg == "" {
		msg = string(e.Kind)
	}
	if e.Op == "" {
		return msg
	}
	return e.Op + ": " + msg
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of the first Error in err's chain. It returns KindInternal if the
// chain has no Error or that Error has no kind, and the empty kind if err is nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) && e.Kind != "" {
		return e.Kind
	}
	return KindInternal
}

// IsKind reports whether err is not nil and KindOf(err) is k.
func IsKind(err error, k Kind) bool { return err != nil && KindOf(err) == k }

// HintOf returns the first non-empty hint in err's chain; empty if there is no hint.
func HintOf(err error) string {
	for err != nil {
		var e *Error
		if !errors.As(err, &e) {
			return ""
		}
		if e.Hint != "" {
			return e.Hint
		}
		err = e.Err
	}
	return ""
}

// Quote returns an untrusted value quoted for an error message: escaped, cut at 80 bytes.
func Quote(s string) string {
	if len(s) > 80 {
		return fmt.Sprintf("%q…", strings.ToValidUTF8(s[:80], ""))
	}
	return fmt.Sprintf("%q", s)
}
