"""A plan or a sweep as one web page that needs no network.

report               the page of a plan, a what-if or a sweep, with its pictures
plan_page, sweep_page   what is on a page
pictures             which pictures there are
frame                what every page has: head, policy, styles, script
markup               the terminal's report as HTML
"""
