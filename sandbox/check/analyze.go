package check

import (
	"maps"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/holdfast-run/holdfast"
)

// Analysis describes what a bash program does, as far as that can be known without running it.
type Analysis struct {
	// Commands are all simple commands in the program, including those that launchers and
	// nested shells would run, in the order found.
	Commands  []Command
	Redirects []Redirect
	// Opaque are the parts of the program that could not be analyzed.
	Opaque []Opaque
	// Unsure lists parts that do not cause a denial but prevent an automatic allowance:
	// unknown options, variables that may name programs.
	Unsure []Opaque
	// MoreThanCommands is true if the program, or one nested in it, does something that
	// Commands do not show: it sets a variable, redirects to a file, substitutes, loops,
	// branches or defines a function. Different programs of that kind may have equal Commands.
	MoreThanCommands bool

	left *bounds
}

// Command is a simple command: the name of a program, builtin or function, and its arguments without quotes. Computed
// is true if an argument is known only at run time; Args then has that argument's source text.
type Command struct {
	Name     string
	Args     []string
	Computed bool
	Pos      int
	// Bare holds the arguments without the options that precede a subcommand: for git -C . push
	// it holds push. It is nil if no option precedes a subcommand.
	Bare []string
	// Lent is true if the command is run by another command that only runs other programs, such
	// as npx. Here is true if the command runs in the directory where the program starts.
	Lent, Here bool

	words []word
	// cwds are the directories that the command may run in; empty if not known.
	cwds []string
	// tabled is true if the program's table determined all files that the command opens.
	tabled bool
	files  []file
	links  []link
}

// Redirect is a file that a redirection opens.
type Redirect struct {
	Path string
	// Writes is true if the redirection may change the file.
	Writes bool
	Pos    int

	target word
	ops    []Op
	cwds   []string
}

// Opaque is a part of a program whose effect cannot be known without running it.
type Opaque struct {
	Code    Code
	Reason  string
	Subject string
	Pos     int
	// interpreter is the program that would run this part as code in its own language.
	interpreter string
}

// Analyze analyzes a bash program as if it started in cwd, an absolute path. It fails if
// the program cannot be parsed or is too large.
func Analyze(program, cwd, home string) (*Analysis, error) {
	return AnalyzeWithin(nil, program, cwd, home)
}

// maxDepth is how deep programs may be nested, as in bash -c "bash -c …".
const maxDepth = 8

// AnalyzeWithin is Analyze, but it calls ended regularly, and stops with the error that ended returns.
func AnalyzeWithin(ended func() error, program, cwd, home string) (an *Analysis, err error) {
	// A panic on an unexpected syntax tree means that the program cannot be analyzed.
	defer func() {
		v := recover()
		if over, ok := v.(exceeded); ok {
			an, err = nil, over.err
		} else if v != nil {
			an, err = nil, holdfast.Errorf(holdfast.KindInvalid, "command", "the command cannot be analyzed: %v", v)
		}
	}()
	left := newBounds(ended)
	a := &analyzer{out: &Analysis{left: left}, left: left, homeDir: home, cwds: []string{path.Clean(cwd)}, start: path.Clean(cwd), outer: -1}
	if err := a.program(program, syntax.LangBash); err != nil {
		return nil, err
	}
	return a.out, nil
}

// analyzer analyzes one program; each nested program gets its own analyzer.
type analyzer struct {
	out     *Analysis
	left    *bounds
	homeDir string
	depth   int
	// outer is where this nested program begins in the outermost program; -1 in the outermost program itself.
	outer int
	// cwds are the directories that the current command may run in, start the one in which the outermost program starts.
	cwds  []string
	start string
	// assigned are the variables that the program sets, text those of them that may hold more than a number.
	assigned, text map[string]bool
	// functions are the functions that the program defines; wandering is true if one of them may change the directory.
	functions map[string]bool
	wandering bool
	// roams is true if the program changes its working directory anywhere. adrift is true once the program has set a
	// trap that may change the directory: from then on it may change at any time.
	roams, adrift bool
	// lent is the value that Command.Lent gets for the commands that are found now.
	lent bool
	// evaluates is true if the program uses eval, trap or source, which may set any variable.
	evaluates bool
}

func (a *analyzer) pos(p syntax.Pos) int {
	if a.outer >= 0 {
		return a.outer
	}
	return int(p.Offset())
}

func (a *analyzer) opaque(code Code, pos int, subject, reason string) {
	a.out.Opaque = append(a.out.Opaque, Opaque{Code: code, Pos: pos, Subject: subject, Reason: reason})
}

// program parses and analyzes a program in one shell dialect.
func (a *analyzer) program(text string, lang syntax.LangVariant) error {
	if i := strings.IndexAny(text, "\x00\r"); i >= 0 {
		return holdfast.Errorf(holdfast.KindInvalid, "command", "the command contains the character %q, which shells interpret differently", text[i])
	}
	if err := a.left.admit(text); err != nil {
		return err
	}
	f, err := syntax.NewParser(syntax.Variant(lang)).Parse(strings.NewReader(text), "")
	if err != nil {
		return holdfast.Errorf(holdfast.KindInvalid, "command", "the command cannot be parsed: %s", err.Error())
	}
	if err := shallow(f); err != nil {
		return err
	}
	if continuedComment(text, f) {
		return holdfast.Errorf(holdfast.KindInvalid, "command", `a comment in the command ends with \, which shells and parsers read differently`)
	}
	a.collect(f)
	a.stmts(f.Stmts)
	return nil
}

// nested analyzes a program that the current one would run, once for each of the given shell dialects.
func (a *analyzer) nested(text string, pos int, langs ...syntax.LangVariant) {
	if a.depth+1 > maxDepth {
		a.opaque(CodeProgram, pos, text, "programs are nested too deep")
		return
	}
	for _, lang := range langs {
		inner := &analyzer{
			out: a.out, left: a.left, homeDir: a.homeDir, depth: a.depth + 1, outer: pos, cwds: slices.Clone(a.cwds), start: a.start,
			// Variables that are set here may be exported to the nested program.
			assigned: maps.Clone(a.assigned), text: maps.Clone(a.text), evaluates: a.evaluates,
			functions: maps.Clone(a.functions), wandering: a.wandering, roams: a.roams, adrift: a.adrift, lent: a.lent,
		}
		if err := inner.program(text, lang); err != nil {
			a.opaque(CodeUnparsable, pos, text, err.Error())
			return
		}
		// Functions that the nested program defines may be defined here too (eval).
		maps.Copy(a.functions, inner.functions)
		a.wandering, a.roams = a.wandering || inner.wandering, a.roams || inner.roams
	}
}

// stmts analyzes statements that run one after the other.
func (a *analyzer) stmts(list []*syntax.Stmt) {
	for _, s := range list {
		a.stmt(s)
	}
}

// apart analyzes, with f, a part that runs in a process of its own, such as a subshell: a cd in it does not
// change the working directory of the program around it.
func (a *analyzer) apart(f func()) {
	cwds := a.cwds
	f()
	a.cwds = cwds
}

// maybe analyzes, with f, a part that may not run: afterwards the old and the new directory are possible.
func (a *analyzer) maybe(f func()) {
	before := a.cwds
	f()
	a.cwds = either(before, a.cwds)
}

// maxCwds is how many possible working directories are followed.
const maxCwds = 8

// either returns the union of two sets of possible directories. An empty set means that the directory is not known,
// and is returned if one of the sets is empty or the union is larger than maxCwds.
func either(x, y []string) []string {
	if len(x) == 0 || len(y) == 0 {
		return nil
	}
	out := slices.Clone(x)
	for _, d := range y {
		if !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	if len(out) > maxCwds {
		return nil
	}
	return out
}

func (a *analyzer) stmt(s *syntax.Stmt) {
	a.left.spend(1)
	run := func() {
		for _, r := range s.Redirs {
			a.redirect(r)
		}
		a.command(s)
	}
	a.out.MoreThanCommands = a.out.MoreThanCommands || s.Coprocess || s.Disown
	if s.Background || s.Coprocess || s.Disown {
		a.apart(run)
		return
	}
	run()
}

func (a *analyzer) command(s *syntax.Stmt) {
	switch s.Cmd.(type) {
	case nil, *syntax.CallExpr, *syntax.BinaryCmd, *syntax.Subshell, *syntax.Block:
	default:
		a.out.MoreThanCommands = true
	}
	switch c := s.Cmd.(type) {
	case nil:
	case *syntax.CallExpr:
		a.call(c, s.Redirs)
	case *syntax.BinaryCmd:
		a.binary(c)
	case *syntax.Subshell:
		a.apart(func() { a.stmts(c.Stmts) })
	case *syntax.Block:
		a.stmts(c.Stmts)
	case *syntax.IfClause:
		a.ifClause(c)
	case *syntax.WhileClause:
		a.loop(c, func() { a.stmts(c.Cond); a.stmts(c.Do) })
	case *syntax.ForClause:
		a.loop(c, func() { a.forLoop(c.Loop); a.stmts(c.Do) })
	case *syntax.CaseClause:
		a.inside(c.Word)
		for _, item := range c.Items {
			for _, p := range item.Patterns {
				a.inside(p)
			}
			a.maybe(func() { a.stmts(item.Stmts) })
		}
	case *syntax.FuncDecl:
		a.function(c)
	case *syntax.TimeClause:
		if c.Stmt != nil {
			if call, ok := c.Stmt.Cmd.(*syntax.CallExpr); ok && len(call.Args) > 0 && call.Args[0].Lit() == "--" {
				a.opaque(CodeLauncher, a.pos(call.Pos()), "time --", "the command behind time -- is not read by this checker")
			}
			a.stmt(c.Stmt)
		}
	case *syntax.CoprocClause:
		a.apart(func() { a.stmt(c.Stmt) })
	case *syntax.DeclClause:
		a.declare(c)
	case *syntax.LetClause:
		a.emit("let", nil, a.pos(c.Pos()))
		for _, x := range c.Exprs {
			a.arithmetic(x)
		}
	case *syntax.ArithmCmd:
		a.arithmetic(c.X)
	case *syntax.TestClause:
		a.test(c.X)
	default:
		a.opaque(CodeUnparsable, a.pos(s.Pos()), "", "the command has a shell construct that this checker does not know")
	}
}

func (a *analyzer) binary(c *syntax.BinaryCmd) {
	switch c.Op {
	case syntax.AndStmt:
		// The right side of && runs only after the left side has succeeded: after a cd, in the new directory.
		before := a.cwds
		a.stmt(c.X)
		if !isCd(c.X) {
			a.maybe(func() { a.stmt(c.Y) })
			return
		}
		a.cwds = a.after(c.X, before)
		a.stmt(c.Y)
		a.cwds = either(before, a.cwds)
	case syntax.OrStmt:
		a.stmt(c.X)
		a.maybe(func() { a.stmt(c.Y) })
	default:
		a.apart(func() { a.stmt(c.X) })
		a.apart(func() { a.stmt(c.Y) })
	}
}

func isCd(s *syntax.Stmt) bool {
	c, ok := s.Cmd.(*syntax.CallExpr)
	return ok && len(c.Args) > 0 && c.Args[0].Lit() == "cd" && !s.Negated && !s.Background && !s.Coprocess
}

// after returns the possible directories after the cd in s has succeeded.
func (a *analyzer) after(s *syntax.Stmt, before []string) []string {
	both := a.cwds
	if len(both) == 0 {
		return nil
	}
	args := a.words(s.Cmd.(*syntax.CallExpr).Args)
	a.cwds = before
	to := a.destination(args[1:])
	a.cwds = both
	return to
}

func (a *analyzer) ifClause(c *syntax.IfClause) {
	a.stmts(c.Cond)
	a.maybe(func() { a.stmts(c.Then) })
	if c.Else != nil {
		a.maybe(func() { a.ifClause(c.Else) })
	}
}

// loop analyzes, with f, a body that may run any number of times. If the body may change the
// directory, the directory is not known in it and afterwards.
func (a *analyzer) loop(c syntax.Node, f func()) {
	before := a.cwds
	if a.movesAbout(c) {
		a.cwds, before = nil, nil
	}
	f()
	a.cwds = either(before, a.cwds)
}

// movesAbout reports whether a command in a syntax tree may change the working directory.
func (a *analyzer) movesAbout(n syntax.Node) bool {
	found := false
	syntax.Walk(n, func(n syntax.Node) bool {
		a.left.step()
		if c, ok := n.(*syntax.CallExpr); ok && len(c.Args) > 0 {
			w := a.reduce(c.Args[0])
			switch w.text {
			case "cd", "pushd", "popd", "command", "builtin", "eval", "source", ".", "trap":
				found = true
			default:
				found = found || w.kind != literal || a.wandering && a.functions[w.text]
			}
		}
		return !found
	})
	return found
}

func (a *analyzer) forLoop(l syntax.Loop) {
	switch l := l.(type) {
	case *syntax.WordIter:
		a.sets(l.Name.Value, "$", a.pos(l.Name.Pos()))
		for _, w := range l.Items {
			a.inside(w)
		}
	case *syntax.CStyleLoop:
		for _, x := range []syntax.ArithmExpr{l.Init, l.Cond, l.Post} {
			if x != nil {
				a.arithmetic(x)
			}
		}
	}
}

// function analyzes the body of a function, which may run later. If the program may change its directory, the
// directory is not known in the body.
func (a *analyzer) function(c *syntax.FuncDecl) {
	if c.Name == nil {
		a.opaque(CodeUnparsable, a.pos(c.Pos()), "", "the command defines a function without a name")
		return
	}
	name := c.Name.Value
	if roleOf(name) != 0 || tableOf(name) != nil || strings.Contains(name, "/") {
		a.opaque(CodeRebinding, a.pos(c.Pos()), name, "the function replaces a command that this checker knows")
	}
	before := a.cwds
	if a.wandering || a.roams || a.evaluates {
		a.cwds = nil
	}
	a.stmt(c.Body)
	a.cwds = before
}
