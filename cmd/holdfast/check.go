package main

import (
	"fmt"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

type checkCmd struct {
	Command checkCommandCmd `cmd:"" help:"Ask about a bash command."`
	Path    checkPathCmd    `cmd:"" help:"Ask about a path."`
}

// checkArgs holds the flags that check command and check path share.
type checkArgs struct {
	Settings string `required:"" placeholder:"FILE" help:"Sandbox settings as JSON; - reads stdin."`
	Cwd      string `placeholder:"DIR" help:"The tools' working directory; /workspace by default."`
	Home     string `placeholder:"DIR" help:"The tools' home directory; ~ is not known without it."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*checkCmd) Help() string {
	return `Says whether sandbox settings allow something, and why not. Needs no server. Ends with 0 if it is allowed, 1 if it is denied, 2 if the question makes no sense.

The checker is an early refusal that explains itself; what holds an agent is the box.

Examples:
  holdfast check command --settings sandbox.json -- 'git log | head'
  holdfast check path --settings sandbox.json --op write -- ../secrets.txt`
}

type checkCommandCmd struct {
	checkArgs
	Op    string `default:"exec" enum:"exec,read,write" hidden:"" help:"A command is executed, whatever is said here."`
	Input string `arg:"" help:"The command, as one argument; put -- before it."`
}

// Run checks whether the settings allow the command.
func (c *checkCommandCmd) Run(e *env) error {
	k, err := c.checker(e)
	if err != nil {
		return err
	}
	return answer(e, k.Command(c.Input))
}

type checkPathCmd struct {
	checkArgs
	Op    string `default:"read" enum:"read,write" placeholder:"OP" help:"What is done to it: read or write (${default})."`
	Input string `arg:"" help:"The path; put -- before it."`
}

// Run checks whether the settings allow the access to the path.
func (c *checkPathCmd) Run(e *env) error {
	k, err := c.checker(e)
	if err != nil {
		return err
	}
	op := check.Read
	if c.Op == "write" {
		op = check.Write
	}
	return answer(e, k.Path(c.Input, op))
}

func (c *checkArgs) checker(e *env) (*check.Checker, error) {
	in := e.stdin
	if c.Settings != "-" {
		f, err := openLocal("check", c.Settings)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	s, err := check.ReadSettings(in)
	if err != nil {
		return nil, err
	}
	for _, l := range s.Lint() {
		e.note("%s", l)
	}
	if err := s.Unsupported(); err != nil {
		e.note("a server would refuse these settings: %s", err)
	}
	return check.New(s, check.Options{Cwd: c.Cwd, Home: c.Home, FS: check.Host{}})
}

// answer prints a verdict, and returns exit code 1 for a denial.
func answer(e *env, v check.Verdict) error {
	text := "allowed"
	if !v.Allowed {
		text = fmt.Sprintf("denied: %s: %s (%s)", holdfast.Quote(v.Subject), v.Reason, v.Code)
	}
	return verdict(v.Allowed, e.say(v, "%s", line(text)))
}
