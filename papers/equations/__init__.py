"""The papers' cost models: pure functions of sizes and unit costs, by the papers' symbols.

One module a paper: `meshjoin`, `x_hybridjoin` (and HYBRIDJOIN), `tuned_x_hybridjoin`, `cachejoin`,
`pcsrj`, `moij`. Each has ``memory`` (equation 1), ``c_loop`` (equation 2), ``service_rate`` and,
where there is something to tune, ``tuned…``. Where a printed equation is wrong, ``printed=True``
gives it as it is and the default gives it corrected.

What this package's own joins cost is another matter: they read ahead, work in batches and find rows
by page. These are the papers'; docs/cost-papers.md has printed beside computed numbers. Examples of
the modules take `Sizes`, `Costs` and `Read` as imported.

Examples
--------
>>> from papers.equations import Costs, Read, Sizes, moij
>>> sizes = Sizes(r_t=100e6, v_p=100_000, ptr=4, f=1.0)
>>> costs = Costs(c_io=Read(fixed=80_000.0, byte=0.5), c_s=50.0, c_h=100.0, c_o=100.0)
>>> round(moij.least_memory(1_000_000, sizes, costs) / 2**20)
151
"""

from papers.equations.symbols import Costs, Read, Sizes

__all__ = ["Costs", "Read", "Sizes"]
