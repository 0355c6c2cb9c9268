// budget: struct cli 40: one field for each global flag and for each command

// Command holdfast is the whole of Holdfast in one program: the server and the
// commands that talk to it.
//
// Each command is a type with a Run method; cli lists them. Nothing imports this
// package; it reads the environment for the packages below it. Invariant: an error
// is printed as one line that says what failed, with the hint if it has one, or
// with --json as a problem document; the exit code is that of the error's kind.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/bench"
	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
	"github.com/holdfast-run/holdfast/internal/lifecycle"
)

func main() { program{drivers: app.ReleasedDrivers()}.main() }

// program is this program with the drivers that it links.
type program struct{ drivers app.Drivers }

// main runs the command line of the process, and ends the process.
func (p program) main() {
	ctx, stop := lifecycle.Signals(context.Background())
	code := p.run(ctx, os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// cli is the command line: global flags and the commands, in the order of the
// help.
type cli struct {
	JSON    bool   `help:"Print JSON." short:"j"`
	URL     string `name:"url" placeholder:"URL" xor:"server" help:"The server; HOLDFAST_URL, else the current context, else the one of the data directory, else http://127.0.0.1:4100."`
	Context string `placeholder:"NAME" xor:"server" help:"The server of this context; see holdfast context."`

	Serve serveCmd `cmd:"" group:"server" help:"Run the server."`

	Agent     agentCmd     `cmd:"" group:"work" help:"Deploy and list agents."`
	Session   sessionCmd   `cmd:"" group:"work" help:"Create, list, pause, resume, rewind, fork and end sessions."`
	Workspace workspaceCmd `cmd:"" group:"work" aliases:"ws" help:"Make, list and delete trees of files that sessions share, or lend a directory of your own."`
	Trash     trashCmd     `cmd:"" group:"work" help:"List, restore and remove deleted sessions."`
	Send      sendCmd      `cmd:"" group:"work" help:"Send a message and show the turn."`
	Chat      chatCmd      `cmd:"" group:"work" help:"Talk with a session on this terminal."`

	Approvals approvalsCmd `cmd:"" group:"work" help:"List and answer what tools ask for, and take back what answers allowed."`

	Acp acpCmd `cmd:"" group:"work" help:"Offer sessions to an editor, as an agent of the Agent Client Protocol."`
	Mcp mcpCmd `cmd:"" group:"work" help:"Offer sessions to another agent, as tools of the Model Context Protocol."`

	Exec       execCmd       `cmd:"" group:"box" help:"Run a command in a session's box."`
	Files      filesCmd      `cmd:"" group:"box" help:"List, read, write and remove a session's files."`
	Cp         cpCmd         `cmd:"" group:"box" help:"Copy files and directories into a session and out of it."`
	Terminal   terminalCmd   `cmd:"" group:"box" help:"Open a terminal in a session's box."`
	Containers containersCmd `cmd:"" group:"box" aliases:"box" help:"List, stop and prune the managed boxes."`

	Demo    demoCmd    `cmd:"" group:"try" help:"See a session survive, in a minute, offline."`
	Doctor  doctorCmd  `cmd:"" group:"try" help:"Say what works on this machine and what is missing."`
	Bench   benchCmd   `cmd:"" group:"try" help:"Measure against the promised limits."`
	Torture tortureCmd `cmd:"" group:"try" help:"Kill servers and boxes under load and check that nothing is lost."`

	Policy policyCmd `cmd:"" group:"try" help:"Ask how tool calls are decided."`
	Check  checkCmd  `cmd:"" group:"try" help:"Ask what sandbox settings allow."`
	Double doubleCmd `cmd:"" group:"try" help:"Run test doubles of model APIs."`

	Contexts   contextCmd    `cmd:"" name:"context" group:"self" help:"Name several servers, and choose one."`
	Config     configCmd     `cmd:"" group:"server" help:"Look up the server's settings."`
	Models     modelsCmd     `cmd:"" group:"server" help:"List the models of the server, and the default of new sessions."`
	Runtime    runtimeCmd    `cmd:"" group:"server" help:"Install and list the agent CLIs that run in boxes."`
	Secret     secretCmd     `cmd:"" group:"server" help:"Keep the server's own credentials, encrypted."`
	Key        keyCmd        `cmd:"" group:"server" help:"Make, list and revoke API keys."`
	Snapshot   snapshotCmd   `cmd:"" group:"server" help:"Show, verify and tidy up the store of checkpoints."`
	Backup     backupCmd     `cmd:"" group:"server" help:"Save everything that the server has stored in a file."`
	Restore    restoreCmd    `cmd:"" group:"server" help:"Make a data directory from a backup."`
	Audit      auditCmd      `cmd:"" group:"server" help:"Export and verify the record of what was decided."`
	Version    versionCmd    `cmd:"" group:"self" help:"Print the version."`
	Completion completionCmd `cmd:"" group:"self" help:"Print the script that completes command lines."`
	Man        manCmd        `cmd:"" group:"self" help:"Print the manual page, or write all of them."`
	Complete   completeCmd   `cmd:"" name:"__complete" hidden:""`
}

// exited is the value of a panic that carries the exit code out of kong, which would end the process.
type exited struct{ code int }

// run parses the command line, runs its command and returns the exit code.
func (p program) run(ctx context.Context, args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) (code int) {
	defer func() {
		if v := recover(); v != nil {
			e, ok := v.(exited)
			if !ok {
				panic(v)
			}
			code = e.code
		}
	}()
	out := &output{w: stdout}
	var c cli
	parser, err := newParser(&c, out, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "holdfast:", err)
		return 1
	}
	args = usual(args)
	e := &env{ctx: ctx, drivers: p.drivers, getenv: getenv, stdin: stdin, stdout: out, stderr: stderr}
	e.color = isTerminal(stdout) && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
	k, err := parser.Parse(args)
	if isGroup(err, args) {
		k, err = parser.Parse(append(args, "--help")) // kong prints the help and ends the command
	}
	if err != nil {
		e.json = asksJSON(args)
		return report(e, usage(err))
	}
	e.json, e.url, e.contextName = c.JSON, c.URL, c.Context
	if err = k.Run(e); err == nil {
		err = out.lost()
	}
	return report(e, forCommands(err, commandOf(k.Selected())))
}

// forCommands replaces the server's general hint about its HTTP routes, which is for programs that send requests, by a
// hint for people who type commands. Any other hint stays.
func forCommands(err error, cmd string) error {
	if holdfast.HintOf(err) != problem.RoutesHint {
		return err
	}
	return (&holdfast.Error{Kind: holdfast.KindOf(err), Err: err}).WithHint("holdfast %s --help", cmd)
}

// output wraps stdout and stores the first error of a write, because most commands ignore such errors.
type output struct {
	w   io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}

// lost returns the error because of which output was lost, or nil if all of it was written.
func (o *output) lost() error {
	if o.err == nil || errors.Is(o.err, errPipe) || errors.Is(o.err, io.ErrClosedPipe) {
		return o.err
	}
	return holdfast.Errorf(holdfast.KindInternal, "stdout", "not all of the command's output was written: %w", o.err).WithHint("free space on the disk, or write the output elsewhere")
}

func newParser(c *cli, stdout, stderr io.Writer) (*kong.Kong, error) {
	return kong.New(c,
		kong.Name("holdfast"),
		kong.Description("Holdfast keeps AI-agent sessions alive: no message, no file and no tool result is lost when a box, the server or the machine dies."),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { panic(exited{code}) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: 100}),
		kong.ExplicitGroups([]kong.Group{
			{Key: "server", Title: "Server"},
			{Key: "try", Title: "Try it, measure it, try to break it"},
			{Key: "work", Title: "Agents and sessions"},
			{Key: "box", Title: "Boxes"},
			{Key: "self", Title: "This program"},
		}),
		kong.Vars{
			"bench_parts": strings.Join(bench.Parts(), ","), "modes": "default, acceptEdits, bypassPermissions, plan, dontAsk or auto",
			"session":  "The session: its id or a beginning or ending of it, its title or a beginning of it, or @last.",
			"sessions": "Sessions, each by its id or a beginning or ending of it, its whole title, or @last.",
		},
		kong.Help(help),
	)
}

// help prints the help of a command. To the help of the whole program it adds examples and the exit codes.
func help(options kong.HelpOptions, ctx *kong.Context) error {
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil {
		return err
	}
	if ctx.Selected() != nil {
		return nil
	}
	_, err := io.WriteString(ctx.Stdout, `
Examples:
  holdfast serve                                   # in one terminal
  id=$(holdfast session create --title "first")    # in another
  holdfast send $id "write hello.txt"
  holdfast exec $id -- cat hello.txt

Short: ls is session list, logs is session events, ps is containers list.

Exit codes: `+exitCodes+`
`)
	return err
}

// exitCodes describes the exit codes: those of holdfast.Kind.ExitCode, and 7, with which holdfast serve ends.
const exitCodes = `0 ok, 1 failed, 2 usage, 3 not found, 4 conflict, busy or gone,
5 denied or unauthenticated, 6 unavailable, 7 the disk of a server failed.`

// usual replaces a first word that people try, such as help, ls or --version, by the command of this program. An empty
// command line becomes --help.
func usual(args []string) []string {
	switch {
	case len(args) == 0:
		return []string{"--help"}
	case args[0] == "help":
		return append(slices.Clone(args[1:]), "--help")
	case args[0] == "--version":
		return append([]string{"version"}, args[1:]...)
	}
	if same, ok := map[string][]string{
		"ls": {"session", "list"}, "ps": {"containers", "list"}, "logs": {"session", "events"},
	}[args[0]]; ok {
		return append(same, args[1:]...)
	}
	return args
}

// isGroup reports whether parsing failed because the command line names a group of commands
// without one of its commands.
func isGroup(err error, args []string) bool {
	var perr *kong.ParseError
	if !errors.As(err, &perr) || perr.Context == nil {
		return false
	}
	at := perr.Context.Selected()
	if at == nil {
		at = lastNode(perr.Context)
	}
	return at != nil && len(at.Children) > 0 && slices.Equal(strings.Fields(commandOf(at)), args)
}

// lastNode returns the last command that was understood in a command line, or nil.
func lastNode(ctx *kong.Context) *kong.Node {
	for _, p := range slices.Backward(ctx.Path) {
		if p.Command != nil {
			return p.Command
		}
	}
	return nil
}

// asksJSON reports whether a command line that does not parse asks for JSON.
func asksJSON(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.Contains(args, "--json") || slices.Contains(args, "-j")
}

// usage returns the error for a command line that does not parse. It does not repeat an argument
// that may be a secret in the wrong place.
func usage(err error) error {
	said := strings.ReplaceAll(err.Error(), `but got "EOL" (<EOL>)`, "and nothing follows")
	hint, cmd := "holdfast --help", ""
	var perr *kong.ParseError
	if errors.As(err, &perr) && perr.Context != nil && perr.Context.Selected() != nil {
		cmd = commandOf(perr.Context.Selected())
		hint = "holdfast " + cmd + " --help"
	}
	switch {
	case cmd == "secret set" && strings.HasPrefix(said, "unexpected argument"):
		said, hint = "unexpected argument: the value of a secret comes from stdin or a file", "holdfast secret set NAME --file FILE"
	case strings.HasPrefix(said, "--env:"):
		said = "--env: expected NAME=VALUE"
	}
	return holdfast.Errorf(holdfast.KindInvalid, "", "%s", cut(line(said), 300)).WithHint("%s", hint)
}

// exitError ends the program with its exit code; the command has printed everything already.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// report prints an error and returns the exit code.
func report(e *env, err error) int {
	if err == nil {
		return 0
	}
	var exit *exitError
	if errors.As(err, &exit) {
		return exit.code
	}
	if errors.Is(err, io.ErrClosedPipe) || errors.Is(err, errPipe) {
		return 1 // the reader of our output is gone: nobody would read the error
	}
	kind := holdfast.KindOf(err)
	if kind == holdfast.KindUnauthenticated && e.tokenFrom != "" {
		err = (&holdfast.Error{Kind: kind, Err: err}).WithHint("%s; %s", e.tokenFrom, holdfast.HintOf(err))
	}
	if e.json {
		_ = e.print(kind.Problem(err), e.stderr)
		return kind.ExitCode()
	}
	fmt.Fprintf(e.stderr, "%sholdfast: %s%s\n", e.style(red), line(err.Error()), e.style(reset))
	if hint := holdfast.HintOf(err); hint != "" {
		fmt.Fprintf(e.stderr, "hint: %s\n", line(hint))
	}
	return kind.ExitCode()
}
