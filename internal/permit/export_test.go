package permit

// Kept returns how many policies of agent versions are kept.
func (p *Policies) Kept() int { return p.kept.Len() }
