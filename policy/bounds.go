package policy

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

// Bounds of judging, because calls come from a model: a path or an input that is too
// long is denied without being read, and a call that takes too long to judge is denied.
// The checker bounds commands in the same way.
const (
	// maxPath is PATH_MAX: the kernel opens no longer path.
	maxPath = 4096
	// maxResolved is the largest length, in bytes, of a path together with the directory to which it is relative.
	maxResolved = 4 * maxPath
	// maxInput is the largest input of a tool that is judged, in bytes.
	maxInput = 16 << 20
	// judgingTime is how long rules, settings and modes together may take for one call.
	// The time of callbacks and people does not count.
	judgingTime = 2 * time.Second
)

// errTooLong is the error of a call whose judging took longer than judgingTime; the call is
// denied.
var errTooLong = errors.New("the call took too long to judge")

// clock measures the time that remains for judging a call. left is the rest of judgingTime; until is the deadline of
// the judging that runs now.
type clock struct {
	ctx   context.Context
	left  time.Duration
	until time.Time
	ticks int
}

// ended returns why judging has to stop, or nil while it may continue.
func (c *clock) ended() error {
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	if time.Now().After(c.until) {
		return errTooLong
	}
	return nil
}

// outOfTime is the value of the panic that ends judging; judged recovers from it.
type outOfTime struct{ err error }

// tick must be called in every loop over rules and over parts of a call. Every 64th call
// checks the time, and panics with outOfTime when the time is over.
func (c *clock) tick() {
	if c.ticks++; c.ticks&0x3f != 0 {
		return
	}
	if err := c.ended(); err != nil {
		panic(outOfTime{err})
	}
}

// judged runs opinion within the time that is left for judging the call. If the time runs
// out, the call is denied. An error means that ctx ended.
func (c *call) judged(t *Trace, opinion func() Decision) (d Decision, err error) {
	began := time.Now()
	c.clock.until = began.Add(c.clock.left)
	defer func() {
		c.clock.left -= time.Since(began)
		v := recover()
		over, ok := v.(outOfTime)
		switch {
		case v == nil:
		case !ok:
			panic(v)
		case errors.Is(over.err, errTooLong):
			d = t.add("bounds", deny("bounds", "%s", over.err))
		default:
			d, err = Decision{}, over.err
		}
	}()
	return opinion(), nil
}

// analyze parses the call's command. If the time runs out it panics with outOfTime, which
// ends the judging: an error would mean "unreadable" to the rules, not "out of time".
func (c *call) analyze() (*check.Analysis, error) {
	an, err := check.AnalyzeWithin(c.clock.ended, c.Command, c.req.cwd(), c.req.home())
	if err != nil && c.clock.ended() != nil {
		panic(outOfTime{c.clock.ended()})
	}
	return an, err
}

// bounds denies inputs that are too long to examine, and paths with blanks around them if the agent's own program opens them.
func (c *call) bounds() Decision {
	if len(c.req.Input) > maxInput {
		return deny("bounds", "the call's input is %d bytes long, more than the %d bytes that are judged", len(c.req.Input), maxInput)
	}
	if len(c.Path) > maxPath {
		return deny("bounds", "the call's path is %d bytes long, more than the %d bytes that a system can open", len(c.Path), maxPath)
	}
	if c.req.Unscoped && c.tool.Subject == SubjectPath {
		for _, s := range []string{c.Path, c.Pattern} {
			// Claude Code removes the blanks around a path before it opens the file (its Grep and Glob; 2.1.329).
			if strings.TrimFunc(s, blank) != s {
				return deny("bounds", "%s begins or ends with a blank, and the agent may open the path without it: leave it out", holdfast.Quote(s))
			}
		}
	}
	return Decision{}
}

// blank reports whether JavaScript's trim removes a character.
func blank(r rune) bool { return unicode.IsSpace(r) || r == '\ufeff' }
